"""The command `verify`: check runs, an audit report or a bundle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fa_registry import jsonio
from fa_registry.audits.proof import (
    check_attached,
    check_pages,
    check_record,
    check_records,
    is_same_release,
    outcome_of,
    rendered_again,
    verdict_tag_differences,
)
from fa_registry.audits.recorded_verdicts import auditing
from fa_registry.audits.reports import LARGEST, load_report, recorded_report
from fa_registry.audits.second_judgement import check_verdicts
from fa_registry.audits.selection import select_runs
from fa_registry.errors import IntegrityError, InvalidFields, RegistryError, UsageError
from fa_registry.evidence.duplicate_weights import compared
from fa_registry.evidence.exclusions import RemeasuredRun
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.remeasure import checked_measuring, remeasure_all
from fa_registry.protocol.integrity import with_checks
from fa_registry.protocol.replay_summary import proof_level
from fa_registry.records import AuditReport, Check, Integrity, ProofLevel, RunRecord
from fa_registry.reporting.pages.notes import Notes
from fa_registry.reporting.results import Result
from fa_registry.studies.options import RunSelector
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.page_digests import check_audit_pages, check_run_pages
from fa_registry.tracking.reader import check_files, check_manifest, table_history
from fa_registry.tracking.schema import TAG_AUDIT
from fa_registry.tracking.stores import open_tracker

PAGES, TAGS = "pages", "verdict tags"  # subjects of a Check
SHOWN = 5  # largest number of runs in a message
WORST_FIRST = ("mismatch", "unverifiable", "trusted", "verified")


@dataclass(frozen=True, repr=False)
class Verification(Result):
    """Result of checking one run, report or bundle.

    Attributes:
        run_id: id of the run, or an empty string if the result is not about a run.
        name: name of the run, or a description of the checked object.
        files: name of each checked file → size in bytes.
        proof: how far this check replayed the training of the run; empty if nothing was recomputed. A report has the level that its
            audit recorded.
    """

    run_id: str
    name: str
    integrity: Integrity
    files: Mapping[str, int] = field(default_factory=dict)
    proof: ProofLevel | Literal[""] = ""

    def row(self) -> dict[str, str]:
        """Return the cells of the table of outcomes."""
        details = "; ".join(self.integrity.details)
        cells = {"run": self.run_id, "name": self.name, "outcome": self.integrity.state}
        return {**cells, "training": self.proof, "details": details}

    def lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.integrity.state}" + (f", training {self.proof}" if self.proof else "")
        yield from self.integrity.details
        yield f"files checked: {len(self.files)}, bytes: {sum(self.files.values()):,}"


def verify_runs(selector: RunSelector, measuring: RemeasureOptions, store: str = "") -> list[Verification]:
    """Recompute the metrics of the selected runs, and check the audits of these runs.

    For each of these audits, the records are judged again and the pages are rendered again. The verdict tags and the attached
    pages of each run must agree with the result.
    """
    problems: list[str] = []
    checked = checked_measuring(measuring, problems)
    if problems:
        raise InvalidFields("verify", problems)
    tracker = open_tracker(store, create=False)
    runs = select_runs(tracker, selector).runs
    audits = judging_audits(runs)
    checks: dict[str, list[Check]] = {run.run_id: [] for run in runs}
    audit_results = [row for audit_id, judged in audits.items() for row in _audit(tracker, audit_id, judged, checks)]
    remeasured = remeasure_all(tracker, runs, checked)
    return [*(_verified(tracker, outcome, checks[outcome.run.run_id]) for outcome in remeasured), *audit_results]


def _verified(tracker: Tracker, result: RemeasuredRun, checks: Sequence[Check]) -> Verification:
    """Return the outcome of the checks of one run.

    If the run was not recomputed, the outcome is `mismatch` for a changed file or table, and `unverifiable` for other errors.
    """
    run, record = result.run, result.record
    if not record:
        state = "mismatch" if result.exclusion.kind == "integrity" else "unverifiable"
        return Verification(run.run_id, run.name, Integrity(state, (result.exclusion.reason,)))
    pages, check = {}, Check(PAGES, "agrees", "the pages that audits attached are unchanged")
    try:
        pages = check_run_pages(tracker, run)
    except IntegrityError as error:
        check = Check(PAGES, "differs", str(error))
    integrity = with_checks(record.integrity, [table_history(tracker, run), check, *checks])
    paths = {name: tracker.artifact(run.run_id, name) for name in (schema.PROVENANCE, *record.digests)}
    # the digests of these files were checked when the run was recomputed
    sizes = {name: path.stat().st_size for name, path in paths.items() if path}
    proof = proof_level([replace(record, integrity=integrity)])
    return Verification(run.run_id, run.name, integrity, {**sizes, **pages}, proof)


def judging_audits(runs: Sequence[StoredRun]) -> dict[str, list[StoredRun]]:
    """Return a mapping: audit id (empty if unknown) → the runs whose verdict tags this audit wrote."""
    # The tag `fa.report` names the audit that judged a run. A later audit that could not judge the run replaced the verdict
    # and wrote the tag `fa.excluded`.
    audits: dict[str, list[StoredRun]] = {}
    for run in runs:
        if not any(map(schema.is_verdict_tag, run.tags)):
            continue
        audits.setdefault(auditing(run), []).append(run)
    return audits


def _audit(
    tracker: Tracker, audit_id: str, runs: Sequence[StoredRun], checks: dict[str, list[Check]]
) -> Iterator[Verification]:
    """Yield the outcomes for an audit's verdicts and pages, and add the checks of its `runs` to `checks`."""
    name = f"audit {audit_id}" if audit_id else "an unknown audit"
    try:
        audit = tracker.get(audit_id) if audit_id else None
        if audit is None:
            run_names = ", ".join(f"run {run.run_id} ({run.name})" for run in runs[:SHOWN])
            raise UsageError(f"no audit in this store wrote the verdict tags {schema.TAG_VERDICT} of {run_names}")
        report = recorded_report(tracker, audit_id, "fa-registry audit")
    except RegistryError as error:
        state = "mismatch" if isinstance(error, IntegrityError) else "unverifiable"
        yield Verification("", f"the pages of {name}", Integrity(state, (str(error),)))
        return
    verdicts = outcome_of(lambda: _verdicts(tracker, report, is_same_release(audit)))
    yield Verification("", f"the verdicts of {name}", verdicts)
    with contextlib.ExitStack() as stack:
        out = None

        def pages() -> Integrity:
            nonlocal out
            out = stack.enter_context(rendered_again(tracker, audit, report))
            return check_pages(tracker, audit, out)

        integrity = outcome_of(pages)
        files = {} if integrity.state == "mismatch" else check_audit_pages(tracker, audit)
        yield Verification("", f"the pages of {name}", integrity, files)
        notes = Notes(report)
        for run in runs:
            checks[run.run_id] += _left_on(tracker, audit, notes, run, out)


def _verdicts(tracker: Tracker, report: AuditReport, same_release: bool) -> Integrity:
    """Compare the report's records with the runs, and its verdicts with newly computed verdicts."""
    records = check_records(tracker, report)
    judged = check_verdicts(report, same_release)
    worst = min((records, judged), key=lambda integrity: WORST_FIRST.index(integrity.state))
    return Integrity(worst.state, (*records.details, *judged.details) if worst.state == "verified" else worst.details)


def _left_on(tracker: Tracker, audit: StoredRun, notes: Notes, run: StoredRun, out: Path | None) -> Iterator[Check]:
    """Check the verdict tags of a run, and compare its attached pages with the files in `out`."""
    differences = verdict_tag_differences(notes.sources.report, run)
    text = "; ".join(differences) or f"the tags agree with audit {audit.run_id}"
    yield Check(TAGS, "differs" if differences else "agrees", text)
    if out is not None:
        integrity = outcome_of(lambda: check_attached(tracker, audit, notes, run, out))
        outcome = {"verified": "agrees", "mismatch": "differs"}.get(integrity.state, "not possible")
        yield Check(PAGES, outcome, "; ".join(integrity.details))


def verify_report(path: Path, store: str) -> list[Verification]:
    """Compare an audit.json with the runs in the store, and judge the records of the audit.json again.

    The outcomes are one for the report, one for its verdicts, and one per run.
    """
    report = load_report(path)
    tracker = open_tracker(store, create=False)
    # the digest is that of the JSON text, which may lack fields with a default
    digest = jsonio.digest_of(jsonio.read_json(path, LARGEST))
    audit = next(iter(tracker.search({schema.TAG_KIND: "audit", TAG_AUDIT: digest})), None)
    recorded = Integrity("verified", ("an audit run of this store recorded exactly this report",))
    if audit is None:
        text = f"no audit run of this store recorded a report with digest {digest}"
        recorded = Integrity("mismatch", (text,))
    verdicts = outcome_of(lambda: check_verdicts(report, bool(audit) and is_same_release(audit)))
    records = [run.record for run in report.runs]
    pairs = zip(records, compared(tracker, records), strict=True)
    # runs with the same final weights as another run have a mismatch
    integrity_by_run = {marked.run_id: marked.integrity for record, marked in pairs if marked is not record}
    return [
        Verification("", f"the report itself, {path.name}", recorded),
        Verification("", f"the verdicts of {path.name}", verdicts),
        *(_still_stands(run.record, integrity_by_run, tracker) for run in report.runs),
    ]


def _still_stands(record: RunRecord, integrity_by_run: Mapping[str, Integrity], tracker: Tracker) -> Verification:
    """Check that the run in the store has the files, specification and metrics of the report's record."""
    files: dict[str, int] = {}

    def compare_run() -> Integrity:
        stored = tracker.get(record.run_id)
        files.update(
            check_manifest(tracker, stored, record.digests) | check_files(tracker, record.run_id, record.digests)
        )
        return integrity_by_run.get(record.run_id) or check_record(tracker, stored, record)

    return Verification(record.run_id, record.name, outcome_of(compare_run), files)
