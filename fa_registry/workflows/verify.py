"""The verify verb: do the figures of runs, or of an old report, still stand?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, InvalidFields, RegistryError, UsageError
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import AuditReport, Check, Integrity, RunAudit
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.pages import check_audit_pages, check_run_pages
from fa_registry.tracking.reader import check_files, check_seal, table_history
from fa_registry.tracking.schema import TAG_AUDIT
from fa_registry.workflows.evidence import Gathered, checked_measuring, gather_all
from fa_registry.workflows.reports import existing, load_report
from fa_registry.workflows.requests import Chosen, Measuring
from fa_registry.workflows.selection import select
from fa_registry.workflows.stores import open_tracker

PAGES = "pages"  # subject of a Check


@dataclass(frozen=True)
class Verification:
    """One run's outcome: verified, mismatch or unverifiable, with what was found. files: each that was checked → its bytes."""

    run_id: str
    name: str
    integrity: Integrity
    files: Mapping[str, int] = field(default_factory=dict)


BUNDLE = ".zip"  # ends the name of a file that is a bundle, and no audit.json


def run_verify(
    report_file: str, chosen: Chosen, measuring: Measuring, store: str = "", key: str = ""
) -> list[Verification]:
    """Verify a report, a bundle, or the chosen runs; UsageError unless it is one of these, and chosen in one way."""
    given = [*(["REPORT"] if report_file else []), *chosen.ways]
    if len(given) != 1:
        raise UsageError(f"verify one of REPORT, --study or --run; found {' and '.join(given) or 'none'}")
    is_bundle = report_file.endswith(BUNDLE)
    if key and not is_bundle:
        raise UsageError("--key is of a bundle, whose name ends on .zip")
    if is_bundle:
        from fa_registry.workflows.bundle import verify_bundle  # which tells its outcomes as this file does

        return verify_bundle(existing(report_file), measuring, key)
    return verify_report(existing(report_file), store) if report_file else verify_runs(chosen, measuring, store)


def verify_runs(chosen: Chosen, measuring: Measuring, store: str = "") -> list[Verification]:
    """Recompute every selected run from its artifacts and compare with what it logged."""
    problems: list[str] = []
    checked = checked_measuring(measuring, problems)
    if problems:
        raise InvalidFields("verify", problems)
    tracker = open_tracker(store, create=False)
    runs = select(tracker, chosen).runs
    verified = [_verified(tracker, outcome) for outcome in gather_all(tracker, runs, checked)]
    audits = dict.fromkeys(run.tags[schema.TAG_REPORT] for run in runs if schema.TAG_REPORT in run.tags)
    return [*verified, *(_audit_pages(tracker, audit_id) for audit_id in audits)]


def _verified(tracker: Tracker, gathered: Gathered) -> Verification:
    """A changed file is a mismatch, and so is a table of the store; whatever else broke says nothing about the figures."""
    run, record = gathered.run, gathered.record
    if not record:
        state = "mismatch" if gathered.gap.kind == "integrity" else "unverifiable"
        return Verification(run.run_id, run.name, Integrity(state, (gathered.gap.reason,)))
    pages, check = {}, Check(PAGES, "agrees", "those that audits attached are as they were written")
    try:
        pages = check_run_pages(tracker, run)
    except IntegrityError as error:
        check = Check(PAGES, "differs", str(error))
    integrity = with_checks(record.integrity, [table_history(tracker, run), check])
    paths = {name: tracker.artifact(run.run_id, name) for name in (schema.PROVENANCE, *record.digests)}
    sizes = {name: path.stat().st_size for name, path in paths.items() if path}  # checked as the run was gathered
    return Verification(run.run_id, run.name, integrity, {**sizes, **pages})


def _audit_pages(tracker: Tracker, audit_id: str) -> Verification:
    """Whether the pages of an audit are as it wrote them."""
    name = f"the pages of audit {audit_id}"
    try:
        files = check_audit_pages(tracker, tracker.get(audit_id))
    except RegistryError as error:
        state = "mismatch" if isinstance(error, IntegrityError) else "unverifiable"
        return Verification("", name, Integrity(state, (str(error),)))
    words = "every page is as the audit wrote it" if files else "written by an older release, which sealed no pages"
    return Verification("", name, Integrity("verified", (words,)), files)


def verify_report(path: Path, store: str = "") -> list[Verification]:
    """Compare an audit.json with the store: every run still there, every artifact still the one that was audited."""
    report = load_report(path)
    tracker = open_tracker(store, create=False)
    results = [_still_stands(run, tracker) for run in report.runs]
    return [Verification("", f"the report itself, {path.name}", _is_recorded(report, tracker)), *results]


def _is_recorded(report: AuditReport, tracker: Tracker) -> Integrity:
    """Whether an audit run of the store recorded exactly this report: figures and verdicts, not artifacts alone."""
    digest = jsonio.digest_of(report)
    if tracker.search({schema.TAG_KIND: "audit", TAG_AUDIT: digest}):
        return Integrity("verified", ("an audit run of this store recorded exactly this report",))
    return Integrity("mismatch", (f"no audit run of this store recorded a report with digest {digest}",))


def _still_stands(run: RunAudit, tracker: Tracker) -> Verification:
    """Whether a run's files and specification are those that were audited; the seal in its tag is over provenance.json too."""
    record = run.record
    try:
        stored = tracker.get(record.run_id)
        files = check_seal(tracker, stored, record.digests) | check_files(tracker, record.run_id, record.digests)
        integrity = Integrity("verified", ("every artifact is the one audited",))
    except RegistryError as error:
        state = "mismatch" if isinstance(error, IntegrityError) else "unverifiable"
        return Verification(record.run_id, record.name, Integrity(state, (str(error),)))
    if stored.tags.get(schema.TAG_SPEC) != record.spec.identity:
        words = f"tag {schema.TAG_SPEC}: expected {record.spec.identity}, found {stored.tags.get(schema.TAG_SPEC)}"
        integrity = Integrity("mismatch", (words,))
    return Verification(record.run_id, record.name, integrity, files)
