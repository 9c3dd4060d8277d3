"""The verify verb: do the figures of runs, or of an old report, still stand?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, RegistryError, UsageError
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import AuditReport, Integrity, RunAudit
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.reader import table_history
from fa_registry.tracking.schema import TAG_AUDIT
from fa_registry.workflows.evidence import Gathered, checked_measuring, gather_all
from fa_registry.workflows.reports import existing, load_report
from fa_registry.workflows.requests import Chosen, Measuring
from fa_registry.workflows.selection import select
from fa_registry.workflows.stores import open_tracker


@dataclass(frozen=True)
class Verification:
    """One run's outcome: verified, mismatch or unverifiable, with what was found."""

    run_id: str
    name: str
    integrity: Integrity


def run_verify(report_file: str, chosen: Chosen, measuring: Measuring, store: str = "") -> list[Verification]:
    """Verify a report, or the chosen runs; UsageError unless it is one of both, and chosen in one way."""
    given = [*(["REPORT"] if report_file else []), *chosen.ways]
    if len(given) != 1:
        raise UsageError(f"verify one of REPORT, --study or --run; found {' and '.join(given) or 'none'}")
    return verify_report(existing(report_file), store) if report_file else verify_runs(chosen, measuring, store)


def verify_runs(chosen: Chosen, measuring: Measuring, store: str = "") -> list[Verification]:
    """Recompute every selected run from its artifacts and compare with what it logged."""
    problems: list[str] = []
    checked = checked_measuring(measuring, problems)
    if problems:
        raise InvalidFields("verify", problems)
    tracker = open_tracker(store, create=False)
    gathered = gather_all(tracker, select(tracker, chosen).runs, checked)
    return [Verification(outcome.run.run_id, outcome.run.name, _integrity(tracker, outcome)) for outcome in gathered]


def _integrity(tracker: Tracker, gathered: Gathered) -> Integrity:
    """A changed file is a mismatch, and so is a table of the store; whatever else broke says nothing about the figures."""
    if gathered.record:
        return with_checks(gathered.record.integrity, [table_history(tracker, gathered.run)])
    return Integrity("mismatch" if gathered.gap.kind == "integrity" else "unverifiable", (gathered.gap.reason,))


def verify_report(path: Path, store: str = "") -> list[Verification]:
    """Compare an audit.json with the store: every run still there, every artifact still the one that was audited."""
    report = load_report(path)
    tracker = open_tracker(store, create=False)
    results = [Verification(run.record.run_id, run.record.name, _still_stands(run, tracker)) for run in report.runs]
    return [Verification("", f"the report itself, {path.name}", _is_recorded(report, tracker)), *results]


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
        held = jsonio.file_digest(path) if path else "no such artifact"
        if held != digest:
            changed.append(f"{name}: expected SHA-256 {digest}, found {held}")
    if stored.tags.get(schema.TAG_SPEC) != record.spec.identity:
        changed.append(
            f"tag {schema.TAG_SPEC}: expected {record.spec.identity}, found {stored.tags.get(schema.TAG_SPEC)}"
        )
    return (
        Integrity("mismatch", tuple(changed))
        if changed
        else Integrity("verified", ("every artifact is the one audited",))
    )
