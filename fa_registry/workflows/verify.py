"""The verify verb: do the figures of runs, or of an old report, still stand?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, RegistryError, UsageError
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import AuditReport, Integrity, RunAudit
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.reader import table_history
from fa_registry.tracking.schema import TAG_AUDIT
from fa_registry.training.redraw import AUTO, asked_steps
from fa_registry.training.specs import whole_number
from fa_registry.workflows.evidence import Gathered, gather_all
from fa_registry.workflows.reports import load_report
from fa_registry.workflows.selection import select
from fa_registry.workflows.stores import open_tracker


@dataclass(frozen=True)
class Verification:
    """One run's outcome: verified, mismatch or unverifiable, with what was found."""

    run_id: str
    name: str
    integrity: Integrity


def check_choice(report_file: str, study: str, run_ids: tuple[str, ...]) -> None:
    """Raise UsageError unless exactly one of a report, a study and run ids says what to verify."""
    given = [name for name, value in (("REPORT", report_file), ("--study", study), ("--run", run_ids)) if value]
    if len(given) != 1:
        raise UsageError(f"verify one of REPORT, --study or --run; found {' and '.join(given) or 'none'}")


def verify_runs(
    study: str,
    run_ids: tuple[str, ...],
    overrides: Mapping[str, Any],
    store: str = "",
    jobs: str | int = 0,
    replay: str | int = AUTO,
) -> list[Verification]:
    """Recompute every selected run from its artifacts and compare with what it logged. jobs: see gathering.gather_all;
    replay: see training.redraw.asked_steps.
    """
    name = "jobs"
    try:
        processes = whole_number(jobs, least=0)
        name = "replay"
        steps = asked_steps(replay)
    except ValueError as error:
        raise InvalidFields("verify", [f"{name}: {error}"]) from error
    tracker = open_tracker(store, create=False)
    chosen = select(tracker, study=study, run_ids=run_ids, overrides=overrides)
    gathered = gather_all(tracker, chosen.runs, processes=processes, replay=steps)
    return [Verification(one.run.run_id, one.run.name, _integrity(tracker, one)) for one in gathered]


def _integrity(tracker: Tracker, gathered: Gathered) -> Integrity:
    """A changed file is a mismatch, and so is a table of the store; whatever else broke says nothing about the figures."""
    if gathered.record:
        return with_checks(gathered.record.integrity, [table_history(tracker, gathered.run)])
    return Integrity("mismatch" if gathered.tampered else "unverifiable", (gathered.reason,))


def verify_report(path: Path, store: str = "") -> list[Verification]:
    """Compare an audit.json with the store: every run still there, every artifact still the one that was audited."""
    report = load_report(path)
    tracker = open_tracker(store, create=False)
    results = [Verification(run.record.run_id, run.record.name, _still_stands(run, tracker)) for run in report.runs]
    return [Verification("", f"the report itself, {path.name}", _is_recorded(report, tracker)), *results]


def exit_code(results: list[Verification]) -> int:
    return 0 if all(result.integrity.state == "verified" for result in results) else 3


def _is_recorded(report: AuditReport, tracker: Tracker) -> Integrity:
    """Whether an audit run of the store recorded exactly this report: figures and verdicts, not artifacts alone."""
    digest = jsonio.digest_of(report)
    if tracker.search({schema.TAG_KIND: "audit", TAG_AUDIT: digest}):
        return Integrity("verified", ("an audit run of this store recorded exactly this report",))
    return Integrity("mismatch", (f"no audit run of this store recorded a report with digest {digest}",))


def _still_stands(run: RunAudit, tracker: Tracker) -> Integrity:
    record = run.record
    try:
        stored = tracker.get(record.run_id)
    except RegistryError as error:
        return Integrity("unverifiable", (str(error),))
    changed = []
    for name, digest in record.digests.items():
        path = tracker.artifact(record.run_id, name)
        found = jsonio.file_digest(path) if path else "no such artifact"
        if found != digest:
            changed.append(f"{name}: expected SHA-256 {digest}, found {found}")
    if stored.tags.get(schema.TAG_SPEC) != record.spec.identity:
        changed.append(
            f"tag {schema.TAG_SPEC}: expected {record.spec.identity}, found {stored.tags.get(schema.TAG_SPEC)}"
        )
    return (
        Integrity("mismatch", tuple(changed))
        if changed
        else Integrity("verified", ("every artifact is the one audited",))
    )
