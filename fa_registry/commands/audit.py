"""The audit verb: pull runs, recompute, judge, render, log."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_registry import architectures, datasets, jsonio, methods
from fa_registry.commands.evidence import gather
from fa_registry.commands.selection import Selection, select
from fa_registry.commands.stores import launched_run, open_tracker
from fa_registry.errors import IntegrityError, InvalidFields, UnknownName
from fa_registry.protocol.engine import judge
from fa_registry.protocol.grouping import frozen_controls
from fa_registry.protocol.rules import Edition, load_edition
from fa_registry.protocol.verdict import exit_code
from fa_registry.records import SCHEMA, AuditReport, Exclusion, RunAudit, RunRecord
from fa_registry.reporting.render import note_markdown, render_report
from fa_registry.studies.study import load_study
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.writer import process_tag

DEFAULT_EDITION = "2026-05"
MAX_NOTE = 4000


@dataclass(frozen=True)
class AuditResult:
    """report, where it was written, the id of the audit's own run, and the exit code of design.md §6."""

    report: AuditReport
    pages: tuple[Path, ...]
    audit_run_id: str
    exit_code: int


@dataclass(frozen=True)
class AuditRequest:
    """What to audit and how. Exactly one of study, experiment, run_ids. out: folder of the pages.

    adopt: the run that `mlflow run` started becomes the audit's own run (not where it is already the study's).
    """

    study: str = ""
    experiment: str = ""
    run_ids: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    edition: str = ""
    trust_logged: bool = False
    out: str = "reports"
    store: str = ""
    templates: str = ""
    data_root: str = ""
    adopt: bool = True


def run_audit(request: AuditRequest) -> AuditResult:
    """Audit the selected runs, write the pages to `out` and log them as one audit run beside the runs."""
    _check(request)
    tracker = open_tracker(request.store, create=False)
    adopted = launched_run() if request.adopt else ""
    selection = select(tracker, request.study, request.experiment, request.run_ids, request.overrides)
    edition = load_edition(request.edition or selection.edition or DEFAULT_EDITION)
    report, tampered = build_report(tracker, selection, edition, request)
    out = Path(request.out)
    pages = tuple(render_report(report, out, Path(request.templates) if request.templates else None))
    beside = open_tracker(request.store, selection.runs[0].experiment)  # the audit stands in its runs' experiment
    audit_run_id = _log(beside, report, pages, out, selection.study, adopted)
    verdicts = [run.verdict for run in report.runs if run.verdict.outcome != "control"]
    incomplete = bool(report.excluded) or not verdicts
    return AuditResult(report, pages, audit_run_id, exit_code(verdicts, tampered or incomplete))


def _check(request: AuditRequest) -> None:
    """Refuse what cannot end well before anything is measured or opened; every wrong field is named."""
    problems = []
    if Path(request.out).exists() and not Path(request.out).is_dir():
        problems.append(f"out: {request.out} is a file; a folder is needed")
    if request.templates and not Path(request.templates).is_dir():
        problems.append(f"templates: there is no folder {request.templates}")
    for name, load in (("edition", load_edition), ("study", load_study)):
        value = getattr(request, name)
        try:
            if value:
                load(value)
        except InvalidFields as error:
            problems += error.problems
        except UnknownName as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise InvalidFields("audit", problems)


def build_report(
    tracker: Tracker, selection: Selection, edition: Edition, request: AuditRequest
) -> tuple[AuditReport, bool]:
    """The report, and whether any run failed its integrity check (changed file, or figures that do not come out again)."""
    records: list[RunRecord] = []
    excluded = list(selection.excluded)
    tampered = False
    root = Path(request.data_root) if request.data_root else None
    for run in selection.runs:
        try:
            records.append(gather(tracker, run, request.trust_logged, root))
        except IntegrityError as error:
            excluded.append(Exclusion(run.run_id, run.name, f"integrity failure: {error}"))
            tampered = True
    controls = frozen_controls(records)
    audits = tuple(
        judge(record, controls.get((record.spec.setting.identity, record.spec.seed)), edition) for record in records
    )
    report = AuditReport(
        title=f"Audit of study {selection.study}" if selection.study else f"Audit of {selection.words}",
        selection=selection.words,
        edition=edition.reference,
        runs=audits,
        excluded=tuple(excluded),
        remarks=selection.remarks,
        cards=cards(records),
    )
    return report, tampered or any(record.integrity.state == "mismatch" for record in records)


def cards(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """The cards of every method, data set and architecture that occurs, as plain data."""
    used = {("methods", record.spec.method) for record in records}
    used |= {("datasets", record.spec.dataset) for record in records}
    used |= {("architectures", record.spec.architecture) for record in records}
    catalogs = {"methods": methods.CATALOG, "datasets": datasets.CATALOG, "architectures": architectures.CATALOG}
    return {
        f"{family}/{name}": json.loads(jsonio.canonical(catalogs[family].get(name).card))
        for family, name in sorted(used)
    }


def _log(tracker: Tracker, report: AuditReport, pages: Sequence[Path], out: Path, study: str, adopted: str) -> str:
    """One audit run with the pages as artifacts; verdict, first fires and note on every audited run."""
    tags = {
        schema.TAG_KIND: "audit",
        schema.TAG_SCHEMA: str(SCHEMA),
        schema.TAG_STATUS: "running",
        schema.TAG_PROCESS: process_tag(),
        schema.TAG_STUDY: study,
        "fa.edition": report.edition.name,
        schema.TAG_AUDIT: jsonio.digest_of(report),
        schema.TAG_NOTE: report.title,
    }
    run_id = tracker.adopt(adopted, report.title, tags, {}) if adopted else tracker.create(report.title, tags, {})
    status, state = "failed", "FAILED"
    try:
        _upload(tracker, run_id, pages, out)
        for run in report.runs:
            tracker.log(run.record.run_id, tags={**verdict_tags(run, report), schema.TAG_REPORT: run_id})
        status, state = "complete", "FINISHED"
    finally:
        tracker.log(run_id, tags={schema.TAG_STATUS: status})
        tracker.finish(run_id, state)
    return run_id


def _upload(tracker: Tracker, run_id: str, pages: Sequence[Path], out: Path) -> None:
    """The pages alone: `out` may hold other files of the user's."""
    with tempfile.TemporaryDirectory(prefix="fa_registry-audit-") as folder:
        for page in pages:
            copy = Path(folder) / page.relative_to(out)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(page, copy)
        tracker.upload(run_id, Path(folder))


def verdict_tags(run: RunAudit, report: AuditReport) -> dict[str, str]:
    """fa.verdict.<edition>, fa.first_fire.<rule> and the note, as tags of the audited run."""
    fires = {
        f"fa.first_fire.{finding.rule}": str(finding.first_fire)
        for finding in run.findings
        if finding.first_fire is not None
    }
    return {
        f"fa.verdict.{report.edition.name}": run.verdict.label,
        **fires,
        schema.TAG_NOTE: note_markdown(run, report)[:MAX_NOTE],
    }
