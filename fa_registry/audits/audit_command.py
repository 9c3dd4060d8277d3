"""The audit command: recompute and judge runs, render pages; `audit_publication` logs the results."""

from __future__ import annotations

import datetime
import html
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fa_registry.analyses import answers_of
from fa_registry.audits.editions import checked_terms
from fa_registry.audits.options import JudgingOptions, ReportOutput, checked_pages
from fa_registry.audits.publication import log_audit
from fa_registry.audits.reports import LARGEST
from fa_registry.audits.selection import (
    Selection,
    add_unaudited_runs,
    count_audits,
    not_judged,
    previous_seed_sets,
    select_runs,
)
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.remeasure import checked_measuring, remeasure_all
from fa_registry.evidence.replay_plan import replay_remarks, report_replay
from fa_registry.evidence.third_party import cards, packages_remark
from fa_registry.protocol.engine import judge_all, second_opinions
from fa_registry.protocol.grouping import duplicate_remarks, groups
from fa_registry.protocol.reproduction import FILE, load_reference, reproduction
from fa_registry.protocol.rules import Edition
from fa_registry.protocol.verdict import exit_code
from fa_registry.protocol.waivers import load_waivers, unknown_rules, without_runs
from fa_registry.records import AuditReport, Reference, Waiver
from fa_registry.reporting import notebook  # noqa: F401 (the display of the report)
from fa_registry.reporting.render import rendered, renderer
from fa_registry.safe_files import UnreadableFile, open_file
from fa_registry.studies.editions import check_headlines
from fa_registry.studies.method_conformance import with_conformance
from fa_registry.studies.options import RunSelector, StoreLocation
from fa_registry.text_safety import escape_to_one_line
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.stores import in_browser, mlflow_run_in_progress, open_tracker

if TYPE_CHECKING:
    import pandas as pd

    from fa_registry.evidence.exclusions import RemeasuredRun
    from fa_registry.jsonio import TomlFile

LOG = logging.getLogger(__name__)
START = 2**16  # bytes at the beginning of a page that contain its title
WAIVERS = "waivers.toml"


@dataclass(frozen=True, repr=False)
class AuditResult:
    """Result of `run_audit`.

    Attributes:
        report: The audit's data, with the findings and verdicts of all runs.
        pages: Paths of the written files.
        audit_run_id: Id of the run that records the audit.
        exit_code: 0 if no run fails, 1 if a run fails, 3 if a run is incomplete or fails its integrity check, or if the audit
            left out complete runs of the judged methods and settings.
        page: Address of the MLflow page that compares the runs, or an empty string if the store has no pages.
        store: Address of the store.
    """

    report: AuditReport
    pages: tuple[Path, ...]
    audit_run_id: str
    exit_code: int
    page: str = ""
    store: str = ""

    def _repr_html_(self) -> str:
        return self.report._repr_html_() or ""

    def __repr__(self) -> str:
        return f"AuditResult({self.report!r}, exit_code={self.exit_code}, report={str(self.pages[0])!r})"

    def __str__(self) -> str:
        return f"{self.report}\nreport: {self.pages[0]}"

    def frame(self) -> pd.DataFrame:
        """Return a pandas frame with one row per judged run; see `dataframes.audit_frame`."""
        from fa_registry.audits.dataframes import audit_frame  # imports pandas, which an audit does not need

        return audit_frame(self.report)


def run_audit(
    selector: RunSelector,
    judging: JudgingOptions = JudgingOptions(),
    measuring: RemeasureOptions = RemeasureOptions(),
    location: StoreLocation = StoreLocation(),
    pages: ReportOutput = ReportOutput(),
    adopt: bool = True,
    early_is_incomplete: bool = True,
) -> AuditResult:
    """Audit the chosen runs, write the pages, and log the audit as a run in the runs' experiment.

    Args:
        adopt: Whether to log the audit to the run that `mlflow run` started. Use False if the study already uses that run.
        early_is_incomplete: Whether the audit is incomplete if a rule of --stop-on ended a run early. Use False if the
            caller passed --stop-on.
    """
    is_nonce_typed = bool(measuring.nonce)  # the check of the options draws a missing nonce
    editions, measuring, waivers, reference = checked_audit(selector, judging, measuring, pages)
    tracker = open_tracker(location.store, create=False, write=True)
    adopted = mlflow_run_in_progress() if adopt else ""
    selection = select_runs(tracker, selector)
    audit_tracker = tracker.with_experiment(selection.runs[0].experiment)
    audit_tracker.check_place()
    report = build_report(tracker, selection, editions, measuring, location.root, waivers)
    if not judging.waivers and (waivers_file := study_waivers(selector)):
        remark = f"The waivers come from {Path(waivers_file).name}, which the study.toml of the study names."
        report = replace(report, remarks=(*report.remarks, remark))
    if reference:
        report = replace(report, reproduction=reproduction(reference, report))
    report = add_unaudited_runs(tracker, report, selection.runs)
    if report.replay:
        replay = replace(report.replay, typed=is_nonce_typed, audits=count_audits(selection.runs))
        report = replace(report, replay=replay)
    out = Path(pages.out)
    _warn_of_other_audit(out, report.title)
    with rendered(report, answers_of(report), out, pages.own_templates) as (folder, names):
        rendered_by = renderer(pages.own_templates)
        audit_run_id, page = log_audit(audit_tracker, report, folder, selection, adopted, rendered_by)
    verdicts = [run.verdict for group in groups(report) if not group.control for run in group.runs]
    gaps = [excluded for excluded in report.excluded if early_is_incomplete or excluded.kind != "ended early"]
    code = exit_code(verdicts, bool(gaps) or not verdicts or bool(report.left_out))
    paths, address = tuple(out / name for name in names), in_browser(tracker.uri, page)
    return AuditResult(report, paths, audit_run_id, code, address, tracker.uri)


def checked_audit(
    selector: RunSelector, judging: JudgingOptions, measuring: RemeasureOptions, pages: ReportOutput
) -> tuple[tuple[Edition, ...], RemeasureOptions, tuple[Waiver, ...], Reference | None]:
    """Return the editions, measuring options, waivers and published reference values.

    The leading edition is the first edition.

    Raises:
        InvalidFields: Arguments are invalid; the error lists all of them.
    """
    problems: list[str] = []
    editions, measuring = checked_judging(selector, judging, measuring, pages, problems)
    waivers = _waivers(judging.waivers or study_waivers(selector), problems)
    reference = study_reference(selector, problems)
    if problems:
        raise InvalidFields("audit", problems)
    return editions, measuring, waivers, reference


def checked_judging(
    selector: RunSelector,
    judging: JudgingOptions,
    measuring: RemeasureOptions,
    pages: ReportOutput,
    problems: list[str],
) -> tuple[tuple[Edition, ...], RemeasureOptions]:
    """Return the editions (the leading one first) and the measuring options; append errors to `problems`."""
    checked_pages(pages, problems)
    editions = checked_terms(selector, judging, problems)
    return editions, checked_measuring(measuring, problems)


def _waivers(file: str, problems: list[str]) -> tuple[Waiver, ...]:
    """Return the waivers in `file`; append errors to `problems`."""
    # If the audit used a file that the user did not name, a file in the current folder could turn exit code 1 into 0.
    local_file = Path(WAIVERS)
    if local_file.is_file() and not (file and os.path.isfile(file) and local_file.samefile(file)):
        LOG.warning("%s in the current folder is not used; to apply this file, add `--waivers %s`", WAIVERS, WAIVERS)
    try:
        return load_waivers(Path(file), datetime.date.today()) if file else ()
    except InvalidFields as error:
        problems += [f"waivers {file}: {problem}" for problem in error.problems]
        return ()


def _study_file(selector: RunSelector) -> TomlFile | None:
    try:
        return selector.file if selector.study else None
    except (UnknownName, InvalidFields):  # `checked_terms` reports this error
        return None


def study_waivers(selector: RunSelector) -> str:
    """Return the path of the study's waivers file; the path is empty if the study names no file."""
    study_file = _study_file(selector)
    name = study_file.table.get("waivers", "") if study_file else ""
    return str(study_file.path.parent / name) if isinstance(name, str) and name else ""


def _warn_of_other_audit(out: Path, title: str) -> None:
    """Log a warning if the folder contains the pages of an audit with another title."""
    with suppress(UnreadableFile), open_file(out / schema.AUDIT_PAGE, LARGEST) as stream:
        found = re.search("<title>(.*?)</title>", stream.read(START).decode(errors="replace"))
        if found and html.unescape(found[1]) != title:
            other = escape_to_one_line(html.unescape(found[1]))
            text = "%s contained: %s. Its index is replaced; its forms stay. --out writes to another folder"
            LOG.warning(text, out, other)


def build_report(
    tracker: Tracker,
    selection: Selection,
    editions: Sequence[Edition],
    measuring: RemeasureOptions,
    data_root: Path | None,
    waivers: tuple[Waiver, ...] = (),
) -> AuditReport:
    """Measure the selected runs and return their report. The arguments are described in `make_report`.

    Raises:
        UsageError: An edition judges a main metric that is not the main metric of the runs.
    """
    headlines = dict.fromkeys(schema.headline(run.tags, run.metrics) for run in selection.runs)
    check_headlines(editions, tuple(headlines))
    remeasured = remeasure_all(tracker, selection.runs, measuring, data_root)
    return make_report(selection, remeasured, editions, measuring, waivers)


def make_report(
    selection: Selection,
    remeasured: Sequence[RemeasuredRun],
    editions: Sequence[Edition],
    measuring: RemeasureOptions,
    waivers: tuple[Waiver, ...] = (),
) -> AuditReport:
    """Judge all runs that pass their integrity checks, by `editions`, the leading edition first.

    The store is neither read nor written. `measuring` states how the metrics were recomputed.
    """
    records, gaps = [], []
    for run in remeasured:
        gap = not_judged(run.record) if run.record else run.exclusion
        if gap:
            gaps.append(gap)
        else:
            records.append(with_conformance(run.record))
    leading, *other_editions = editions
    replay = report_replay(measuring, remeasured)
    interim_analyses, _ = previous_seed_sets(records, selection.runs)
    judged = judge_all(records, leading, waivers, interim_analyses)
    without_effect = [*_expired(waivers), *unknown_rules(waivers, editions), *without_runs(waivers, records)]
    return AuditReport(
        title=f"Audit of study {selection.study}" if selection.study else f"Audit of {selection.text}",
        selection=selection.text,
        edition=leading.reference,
        runs=judged,
        excluded=(*selection.excluded, *gaps),
        remarks=(
            *packages_remark([run.record for run in remeasured if run.record]),
            *selection.remarks,
            *duplicate_remarks(records),
            *replay_remarks(remeasured, replay),
            *without_effect,
        ),
        cards=cards(records),
        opinions=second_opinions(records, other_editions, waivers, interim_analyses),
        waivers=waivers,
        choice=selection.choice,
        replay=None if measuring.trust_logged else replay,
    )


def is_intact(report: AuditReport) -> bool:
    """Return whether every run of the report passed its integrity checks."""
    return not any(excluded.kind == "integrity" for excluded in report.excluded)


def _expired(waivers: Sequence[Waiver]) -> Iterator[str]:
    for waiver in waivers:
        if waiver.expired:
            yield (
                f"The waiver of {waiver.rule} for {waiver.run or waiver.method} by {waiver.author} expired on "
                f"{waiver.expiry} and does not apply. The reason for the waiver was: {waiver.reason}"
            )


def study_reference(selector: RunSelector, problems: list[str]) -> Reference | None:
    """Return the reference values in the folder of study.toml, or None; append errors to `problems`."""
    study_file = _study_file(selector)
    try:
        if study_file and study_file.path.with_name(FILE).is_file():
            return load_reference(study_file.path.parent.resolve())
    except InvalidFields as error:
        problems += error.problems
    return None
