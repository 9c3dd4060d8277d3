"""The audit verb: pull runs, recompute, judge, render, log."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_registry import architectures, datasets, diagnostics, jsonio, methods
from fa_registry.commands.audit_log import log_audit
from fa_registry.commands.conformance import with_conformance
from fa_registry.commands.editions import checked_request
from fa_registry.commands.exclusions import exclusion, not_judged
from fa_registry.commands.gathering import Gathered, gather_all, replay_remark
from fa_registry.commands.looks import looks_of
from fa_registry.commands.references import study_reference
from fa_registry.commands.selection import Selection, select
from fa_registry.commands.stores import launched_run, open_tracker
from fa_registry.commands.unaudited import with_unaudited
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.engine import judge_all, second_opinions
from fa_registry.protocol.reproduction import reproduction
from fa_registry.protocol.rules import Edition
from fa_registry.protocol.verdict import exit_code
from fa_registry.protocol.waivers import load_waivers, unknown_rules, without_runs
from fa_registry.records import AuditReport, Exclusion, Reference, RunRecord, Waiver
from fa_registry.reporting.render import render_report
from fa_registry.reporting.user_templates import template_problems
from fa_registry.tracking.base import Tracker
from fa_registry.training.redraw import AUTO, asked_steps

WAIVERS = "waivers.toml"


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

    edition, or several editions: see editions.chosen_editions; thresholds: of the leading one. waivers: a file; without one
    waivers.toml of the current folder, if it is there. jobs: processes that measure, see gathering.gather_all.
    replay: how many steps of every run are taken again, see training.redraw.asked_steps.
    adopt: the run that `mlflow run` started becomes the audit's own run (not where it is already the study's).
    early_is_incomplete: whether a run that --stop-on ended makes the audit incomplete (not where it was just asked for).
    """

    study: str = ""
    experiment: str = ""
    run_ids: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    edition: str = ""
    editions: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    waivers: str = ""
    trust_logged: bool = False
    jobs: str | int = 0
    replay: str | int = AUTO
    out: str = "reports"
    store: str = ""
    templates: str = ""
    data_root: str = ""
    adopt: bool = True
    early_is_incomplete: bool = True


@dataclass(frozen=True)
class Terms:
    """What the runs are judged by: the editions, the leading one first, the waivers, and the study's published figures."""

    editions: tuple[Edition, ...]
    waivers: tuple[Waiver, ...] = ()
    processes: int = 0
    replay: str | int = AUTO
    reference: Reference | None = None

    @property
    def remarks(self) -> Iterator[str]:
        """What has no effect although somebody wrote it down."""
        for one in self.waivers:
            if one.expired:
                yield (
                    f"The waiver of {one.rule} for {one.run or one.method} by {one.author} expired on {one.expiry} "
                    f"and does not apply. Its reason was: {one.reason}"
                )
        yield from unknown_rules(self.waivers, self.editions)


def run_audit(request: AuditRequest) -> AuditResult:
    """Audit the selected runs, write the pages to `out` and log them as one audit run beside the runs."""
    terms = _checked(request)
    tracker = open_tracker(request.store, create=False)
    adopted = launched_run() if request.adopt else ""
    selection = select(tracker, request.study, request.experiment, request.run_ids, request.overrides)
    report, tampered = build_report(tracker, selection, terms, request)
    report = with_unaudited(tracker, report, selection.runs)
    out = Path(request.out)
    pages = tuple(render_report(report, out, Path(request.templates) if request.templates else None))
    beside = tracker.beside(selection.runs[0].experiment)  # the audit stands in its runs' experiment
    audit_run_id = log_audit(beside, report, pages, out, selection, adopted)
    verdicts = [run.verdict for run in report.runs if run.verdict.outcome != "control"]
    gaps = [one for one in report.excluded if request.early_is_incomplete or one.kind != "ended early"]
    return AuditResult(report, pages, audit_run_id, exit_code(verdicts, tampered or bool(gaps) or not verdicts))


def _checked(request: AuditRequest) -> Terms:
    """Refuse what cannot end well before anything is measured or opened; every wrong field is named."""
    problems: list[str] = []
    if request.templates:
        problems += template_problems(Path(request.templates))
    editions, processes = checked_request(request, request.editions, problems)
    waivers = _waivers(request.waivers, problems)
    reference = study_reference(request.study, problems)
    replay: str | int = AUTO
    try:
        replay = asked_steps(request.replay)
    except ValueError as error:
        problems.append(f"replay: {error}")
    if problems:
        raise InvalidFields("audit", problems)
    return Terms(editions, waivers, processes, replay, reference)


def _waivers(file: str, problems: list[str]) -> tuple[Waiver, ...]:
    """The waivers of the file, or of the current folder's; what is wrong with them is added to `problems`."""
    found = file or (WAIVERS if Path(WAIVERS).is_file() else "")
    try:
        return load_waivers(Path(found), datetime.date.today()) if found else ()
    except InvalidFields as error:
        problems += [f"waivers {found}: {problem}" for problem in error.problems]
        return ()


def build_report(
    tracker: Tracker, selection: Selection, terms: Terms, request: AuditRequest
) -> tuple[AuditReport, bool]:
    """The report, and whether any run failed its integrity check: it is not judged, whatever its figures say."""
    gathered = gather_all(
        tracker, selection.runs, request.trust_logged, request.data_root, terms.processes, terms.replay
    )
    records = [with_conformance(one.record) for one in gathered if one.record and not not_judged(one.record)]
    broken = [_excluded(tracker, one) for one in gathered if one.record is None or not_judged(one.record)]
    leading, *others = terms.editions
    looks = looks_of(records, selection.runs).number
    report = AuditReport(
        title=f"Audit of study {selection.study}" if selection.study else f"Audit of {selection.words}",
        selection=selection.words,
        edition=leading.reference,
        runs=judge_all(records, leading, terms.waivers, looks),
        excluded=(*selection.excluded, *broken),
        remarks=(*selection.remarks, *replay_remark(gathered), *terms.remarks, *without_runs(terms.waivers, records)),
        cards=cards(records),
        opinions=second_opinions(records, others, terms.waivers, looks),
        waivers=terms.waivers,
        choice=selection.choice,
    )
    if terms.reference:
        report = dataclasses.replace(report, reproduction=reproduction(terms.reference, report))
    return report, any(one.kind == "integrity" for one in report.excluded)


def _excluded(tracker: Tracker, gathered: Gathered) -> Exclusion:
    if gathered.record:
        return not_judged(gathered.record)
    kind = "integrity" if gathered.tampered else "broken"
    return exclusion(tracker, gathered.run, gathered.reason, gathered.failure, kind=kind)


def cards(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """The cards of all diagnostics, and of every method, data set and architecture that occurs and is installed here."""
    used = {("methods", record.spec.method) for record in records}
    used |= {("datasets", record.spec.dataset) for record in records}
    used |= {("architectures", record.spec.architecture) for record in records}
    used |= {("diagnostics", name) for name in diagnostics.CATALOG.names()}
    catalogs = {
        "methods": methods.CATALOG,
        "architectures": architectures.CATALOG,
        "diagnostics": diagnostics.CATALOG,
    }
    found = {}
    for family, name in sorted(used):
        try:
            member = datasets.get(name) if family == "datasets" else catalogs[family].get(name)
        except UnknownName:
            continue  # logged figures can be judged where their plugin is not
        found[f"{family}/{name}"] = json.loads(jsonio.canonical(member.card))
    return found
