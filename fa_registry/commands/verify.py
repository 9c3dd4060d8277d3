"""The verify verb: do the figures of runs, or of an old report, still stand?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.commands.gathering import Gathered, gather_all
from fa_registry.commands.selection import select
from fa_registry.commands.stores import open_tracker
from fa_registry.errors import InvalidFields, RegistryError, UsageError
from fa_registry.records import SCHEMA, AuditReport, Integrity, RunAudit
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.schema import TAG_AUDIT
from fa_registry.training.specs import whole_number


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
    study: str, run_ids: tuple[str, ...], overrides: Mapping[str, Any], store: str = "", jobs: str | int = 0
) -> list[Verification]:
    """Recompute every selected run from its artifacts and compare with what it logged. jobs: see gathering.gather_all."""
    try:
        processes = whole_number(jobs, least=0)
    except ValueError as error:
        raise InvalidFields("verify", [f"jobs: {error}"]) from error
    tracker = open_tracker(store, create=False)
    chosen = select(tracker, study=study, run_ids=run_ids, overrides=overrides)
    gathered = gather_all(tracker, chosen.runs, processes=processes)
    return [Verification(one.run.run_id, one.run.name, _integrity(one)) for one in gathered]


def _integrity(gathered: Gathered) -> Integrity:
    """A changed file is a mismatch; whatever else broke says nothing about the figures."""
    if gathered.record:
        return gathered.record.integrity
    return Integrity("mismatch" if gathered.tampered else "unverifiable", (gathered.reason,))


def verify_report(path: Path, store: str = "") -> list[Verification]:
    """Compare an audit.json with the store: every run still there, every artifact still the one that was audited."""
    report = load_report(path)
    tracker = open_tracker(store, create=False)
    results = [Verification(run.record.run_id, run.record.name, _still_stands(run, tracker)) for run in report.runs]
    return [Verification("", f"the report itself, {path.name}", _is_recorded(report, tracker)), *results]


def load_report(path: Path) -> AuditReport:
    """An audit.json as an AuditReport. InvalidFields when it is not one, UsageError when it is one of another schema."""
    subject = f"report {path}"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
    except (OSError, ValueError) as error:  # a file that is no text, no JSON, or holds NaN
        raise InvalidFields(subject, [f"file: cannot be read as JSON: {error}"]) from error
    schema_found = raw.get("schema") if isinstance(raw, Mapping) else None
    if isinstance(schema_found, int) and schema_found != SCHEMA:
        raise UsageError(f"{subject}: expected schema {SCHEMA}, found {schema_found}; {_other_schema(schema_found)}")
    report = jsonio.decode(AuditReport, raw, f"report {path.name}")
    problems = list(_incomplete(report))
    if schema_found != SCHEMA:
        problems.append(f"schema: expected {SCHEMA}, found nothing")
    if problems:
        raise InvalidFields(subject, problems)
    return report


def _incomplete(report: AuditReport) -> Iterator[str]:
    """What the records hold each, and not together: a run twice, or an opinion that is not of exactly the report's runs."""
    ids = [run.record.run_id for run in report.runs]
    for twice in sorted({run_id for run_id in ids if ids.count(run_id) > 1}):
        yield f"runs: expected every run once, found {twice} {ids.count(twice)} times"
    for place, opinion in enumerate(report.opinions):
        judged = [one.run_id for one in opinion.judgements]
        if judged != ids:
            at = next((at for at, (one, other) in enumerate(zip(judged, ids, strict=False)) if one != other), None)
            found = f"{len(judged)} of {len(ids)}" if at is None else f"{judged[at]} where {ids[at]} belongs"
            yield f"opinions[{place}].judgements: expected the report's runs in their order, found {found}"


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _other_schema(found: int) -> str:
    if found < SCHEMA:
        return "an older release wrote it: audit its runs again with this one, or read it with that one"
    return "a newer release wrote it: update fa_registry"


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
