"""The audit command: recompute and judge runs, render pages and log the results."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_registry import architectures, datasets, diagnostics, jsonio, methods, process_ownership
from fa_registry.errors import InvalidFields, PluginError, RegistryError, UnknownName
from fa_registry.interrupts import deferred_interrupts
from fa_registry.protocol.builtin_editions import describe_edition, verdict_mark
from fa_registry.protocol.engine import judge_all, second_opinions
from fa_registry.protocol.grouping import duplicate_remarks, groups
from fa_registry.protocol.multiplicity import compared_methods
from fa_registry.protocol.reproduction import FILE, load_reference, reproduction
from fa_registry.protocol.rules import Edition
from fa_registry.protocol.verdict import exit_code
from fa_registry.protocol.waivers import load_waivers, unknown_rules, without_runs
from fa_registry.records import (
    SCHEMA,
    AuditReport,
    EditionReference,
    Reference,
    RunAudit,
    RunRecord,
    Verdict,
    Waiver,
)
from fa_registry.reporting import notebook  # noqa: F401 (the display of the report)
from fa_registry.reporting.pages.form import inline_assets, placeholder_form
from fa_registry.reporting.pages.notes import Notes, not_judged_text
from fa_registry.reporting.render import rendered, renderer
from fa_registry.safe_files import UnreadableFile
from fa_registry.tracking import schema
from fa_registry.tracking.artifact_location import OutsideStore
from fa_registry.tracking.base import Point, Tracker
from fa_registry.tracking.lease import LeaseHolder, sign
from fa_registry.tracking.page_digests import seal_folder, seal_pages
from fa_registry.tracking.store_errors import KEYLESS, LACKING, StoreRefusal
from fa_registry.workflows.conformance import with_conformance
from fa_registry.workflows.editions import check_headlines, checked_terms, signature
from fa_registry.workflows.options import (
    JudgingOptions,
    RemeasureOptions,
    ReportOutput,
    RunSelector,
    StoreLocation,
    checked_pages,
)
from fa_registry.workflows.remeasure import checked_measuring, remeasure_all, replay_remark, report_replay, with_chosen
from fa_registry.workflows.reports import audits_of, numbered
from fa_registry.workflows.run_status import logged_headline
from fa_registry.workflows.selection import Selection, add_unaudited_runs, not_judged, previous_seed_sets, select_runs
from fa_registry.workflows.stores import in_browser, mlflow_page, mlflow_run_in_progress, open_tracker
from fa_registry.workflows.third_party import packages_remark, third_party_cards

if TYPE_CHECKING:
    import pandas as pd

LOG = logging.getLogger(__name__)
WAIVERS = "waivers.toml"


@dataclass(frozen=True, repr=False)
class AuditResult:
    """Result of `run_audit`.

    Attributes:
        report: The audit's data, with the findings and verdicts of all runs.
        pages: Paths of the written files.
        audit_run_id: Id of the run that records the audit.
        exit_code: 0 if no run fails, 1 if a run fails, 3 if a run is incomplete or fails its integrity check.
        page: Address of the MLflow page that compares the runs, or an empty string if the store has no pages.
    """

    report: AuditReport
    pages: tuple[Path, ...]
    audit_run_id: str
    exit_code: int
    page: str = ""

    def _repr_html_(self) -> str:
        return self.report._repr_html_() or ""

    def __repr__(self) -> str:
        return f"AuditResult({self.report!r}, exit_code={self.exit_code}, report={str(self.pages[0])!r})"

    def __str__(self) -> str:
        return f"{self.report}\nreport: {self.pages[0]}"

    def frame(self) -> pd.DataFrame:
        """Return a pandas frame with one row per judged run; see `dataframes.audit_frame`."""
        from fa_registry.workflows.dataframes import audit_frame  # imports pandas, which an audit does not need

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
    """Audit the chosen runs, write the pages, and log the audit as one MLflow run.

    The audit's run is logged in the experiment of the audited runs.

    Args:
        judging: Editions, thresholds and waivers.
        measuring: Whether and how to recompute the metrics.
        pages: Folder of the pages, and user templates.
        adopt: Whether to log the audit to the run that `mlflow run` started. Use False if the study already uses that run.
        early_is_incomplete: Whether the audit is incomplete if a rule of --stop-on ended a run early. Use False if the caller
            passed --stop-on.
    """
    editions, measuring, waivers, reference = checked_audit(selector, judging, measuring, pages)
    tracker = open_tracker(location.store, create=False, write=True)
    adopted = mlflow_run_in_progress() if adopt else ""
    selection = select_runs(tracker, selector)
    audit_tracker = tracker.with_experiment(selection.runs[0].experiment)
    audit_tracker.check_place()
    report = build_report(tracker, selection, editions, measuring, location.root, waivers)
    if not judging.waivers and (waivers_file := study_waivers(selector)):
        remark = f"The waivers come from {Path(waivers_file).name}, which the study.toml of the study names."
        report = dataclasses.replace(report, remarks=(*report.remarks, remark))
    if reference:
        report = dataclasses.replace(report, reproduction=reproduction(reference, report))
    report = add_unaudited_runs(tracker, report, selection.runs)
    out = Path(pages.out)
    with rendered(report, out, pages.own_templates) as (folder, names):
        rendered_by = renderer(pages.own_templates)
        audit_run_id, page = log_audit(audit_tracker, report, folder, selection, adopted, rendered_by)
    verdicts = [run.verdict for group in groups(report) if not group.control for run in group.runs]
    gaps = [excluded for excluded in report.excluded if early_is_incomplete or excluded.kind != "ended early"]
    code = exit_code(verdicts, bool(gaps) or not verdicts)
    page_paths = tuple(out / name for name in names)
    return AuditResult(report, page_paths, audit_run_id, code, in_browser(audit_tracker.uri, page))


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
    """Return the editions, the leading edition first, and the measuring options.

    Append all errors in the arguments to `problems`.
    """
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


def study_waivers(selector: RunSelector) -> str:
    """Return the path of the study's waivers file, or an empty string."""
    if not selector.study:
        return ""
    try:
        file_name = selector.file.raw.get("waivers", "")
        return str(selector.file.path.parent / file_name) if isinstance(file_name, str) and file_name else ""
    except (UnknownName, InvalidFields):  # `checked_terms` reports this error
        return ""


def build_report(
    tracker: Tracker,
    selection: Selection,
    editions: Sequence[Edition],
    measuring: RemeasureOptions,
    data_root: Path | None,
    waivers: tuple[Waiver, ...] = (),
) -> AuditReport:
    """Judge all runs that pass their integrity checks, and return the audit's report.

    Args:
        editions: The editions, the leading edition first.
        measuring: Whether and how to recompute the metrics.

    Raises:
        UsageError: An edition judges a main metric that is not the main metric of the runs.
    """
    check_headlines(editions, tuple(dict.fromkeys(map(logged_headline, selection.runs))))
    measuring = with_chosen(tracker, selection.runs, measuring)
    remeasured = remeasure_all(tracker, selection.runs, measuring, data_root)
    records, gaps = [], []
    for run in remeasured:
        gap = not_judged(run.record) if run.record else run.exclusion
        if gap:
            gaps.append(gap)
        else:
            records.append(with_conformance(run.record))
    leading, *other_editions = editions
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
            *replay_remark(remeasured),
            *compared_methods(judged),
            *without_effect,
        ),
        cards=cards(records),
        opinions=second_opinions(records, other_editions, waivers, interim_analyses),
        waivers=waivers,
        choice=selection.choice,
        replay=None if measuring.trust_logged else report_replay(measuring, remeasured),
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


def cards(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the cards of all diagnostics and of the plug-ins that the records use.

    Each key is `<plug-in kind>/<name>`, for example `methods/dfa`. Plug-ins that are not installed are omitted.
    """
    used_plugins = {("methods", record.spec.method) for record in records}
    used_plugins |= {("datasets", record.spec.dataset) for record in records}
    used_plugins |= {("architectures", record.spec.architecture) for record in records}
    used_plugins |= {("diagnostics", name) for name in diagnostics.CATALOG.built_in()}
    getters = {
        "methods": methods.CATALOG.get,
        "datasets": datasets.get,
        "architectures": architectures.CATALOG.get,
        "diagnostics": diagnostics.CATALOG.get,
    }
    installed_cards = {}
    for plugin_kind, name in sorted(used_plugins):
        with suppress(UnknownName, PluginError):  # metrics of a plug-in that is not installed can still be judged
            installed_cards[f"{plugin_kind}/{name}"] = json.loads(jsonio.canonical(getters[plugin_kind](name).card))
    return dict(sorted({**third_party_cards(), **installed_cards}.items()))


NO_DIGEST = "not known by which rules: an older release set this tag"
HAS_DIGEST = re.compile(r".*\.[0-9a-f]{8}(\.modified)?").fullmatch
RULE = "\n\n---\n\n"  # separates the findings of the newest audit from the study's question, in the study's note


def log_audit(
    tracker: Tracker, report: AuditReport, folder: Path, selection: Selection, adopted: str, rendered_by: str
) -> tuple[str, str]:
    """Log the audit as one run with the pages as artifacts, and tag the audited runs.

    Every judged run gets its verdicts, the first epochs at which rules fired, its margin, a note and the reporting form of its
    group. A run that could not be judged gets a note with the reason. The study's run gets a note.

    Args:
        folder: Folder that contains only the pages.
        adopted: Id of an existing run that records the audit, or an empty string for a new run.
        rendered_by: Text from `reporting.render.renderer`, which identifies the code and templates that rendered the pages.

    Returns:
        The id of the audit's run, and the address of the MLflow page.
    """
    tags = {
        schema.TAG_KIND: "audit",
        schema.TAG_SCHEMA: str(SCHEMA),
        schema.TAG_STATUS: "running",
        schema.TAG_PROCESS: process_ownership.process_tag(),
        schema.TAG_STUDY: selection.study,
        schema.TAG_EDITION: describe_edition(report.edition),
        schema.TAG_AUDIT: jsonio.digest_of(report),
        schema.TAG_RENDERER: rendered_by,
        **sign(0, process_ownership.LEASE),
        **(numbered(audits_of(tracker, selection.study)) if selection.study else {}),
    }
    status, state, run_id = "failed", "FAILED", adopted
    try:
        with deferred_interrupts():  # an interrupt before the id is known would leave a run that nothing can end
            run_id = (
                tracker.adopt(adopted, report.title, tags, {}) if adopted else tracker.create(report.title, tags, {})
            )
        with LeaseHolder(tracker, run_id, process_ownership.LEASE):  # its heartbeats show that this process is alive
            page = _report_all(tracker, report, folder, selection, run_id)
        status, state = "complete", "FINISHED"
    except KeyboardInterrupt:
        status, state = schema.INTERRUPTED, "KILLED"
        raise
    finally:
        with deferred_interrupts():
            if run_id:
                tracker.log(run_id, tags={schema.TAG_STATUS: status})
                tracker.finish(run_id, state)
    return run_id, page


def _report_all(tracker: Tracker, report: AuditReport, folder: Path, selection: Selection, run_id: str) -> str:
    """Log the results to the audit's run, the audited runs and the study.

    Return the address of the MLflow page.
    """
    tracker.log(run_id, tags=_upload(tracker, run_id, folder))
    notes = Notes(report)
    forms = _attach_forms(tracker, notes, folder)
    _tag_runs(tracker, report, notes, run_id, selection, forms)
    # the runs are tagged before, because the page has columns for verdicts, margins and first epochs of rules
    judged = {run.run_id for run in selection.runs}
    page = mlflow_page(tracker, selection.study, selection.runs[0].experiment, judged)
    note = notes.of_audit(tracker.link(run_id, ""), page)
    tracker.log(run_id, tags={schema.TAG_NOTE: note})
    _tag_excluded(tracker, report, notes, run_id)
    _tag_studies(tracker, selection, {schema.TAG_NOTE: note, schema.TAG_REPORT: run_id})
    return page


def _upload(tracker: Tracker, run_id: str, folder: Path) -> dict[str, str]:
    tag = seal_folder(folder)
    tracker.upload(run_id, folder)
    return tag


def _tag_runs(
    tracker: Tracker,
    report: AuditReport,
    notes: Notes,
    audit_id: str,
    selection: Selection,
    forms: Mapping[str, Mapping[str, str]],
) -> None:
    """Log verdicts, note and margin to every judged run."""
    stored_runs = {run.run_id: run for run in selection.runs}
    audit_link = tracker.link(audit_id, "index.html")
    _, interim_tags = previous_seed_sets([run.record for run in report.runs], selection.runs)
    for index, run in enumerate(report.runs):
        run_id = run.record.run_id
        form = tracker.link(run_id, schema.FORM) if run_id in notes.forms else ""
        tags = {
            **verdict_tags(report, index, stored_runs[run_id].tags),
            **first_fire_tags(run, report, stored_runs[run_id].tags),
        }
        note = notes.of_run(run, form, audit_link)
        pages = {**forms.get(run_id, {}), **_attach(tracker, [run_id], schema.SHORT_FORM, note)}
        tags |= {schema.TAG_NOTE: note, schema.TAG_REPORT: audit_id, **seal_pages(pages)}
        tags |= {schema.TAG_LOOKS: interim_tags[run_id]} if run_id in interim_tags else {}
        # an earlier audit usually logged the same margin, and logging a metric takes as long as logging all tags
        points = [Point(key, schema.shown(value), _last_epoch(run)) for key, value in filter(None, [notes.margin(run)])]
        new_points = [point for point in points if point.value != stored_runs[run_id].metrics.get(point.key)]
        tracker.log(run_id, new_points, tags)
        tracker.remove_tags(run_id, outdated_verdict_tags(tags, stored_runs[run_id].tags))


def _tag_excluded(tracker: Tracker, report: AuditReport, notes: Notes, audit_id: str) -> None:
    """Replace older verdicts in the tags of runs that this audit could not judge."""
    # A run that may still be training is skipped, because a worker may be writing the note and tags of the run.
    # TAG_REPORT is not changed: it names the audit that judged the run.
    audit_link = tracker.link(audit_id, "index.html")
    for excluded in report.excluded:
        tags = tracker.get(excluded.run_id).tags if excluded.run_id else {}
        recorded = excluded.kind == "integrity" and schema.TAG_ARTIFACTS in tags  # even if the status tag was edited
        if recorded or tags.get(schema.TAG_STATUS) in schema.ENDED_STATUSES:
            verdict, note = not_judged_text(excluded), notes.of_excluded(excluded, audit_link)
            pages = _attach(tracker, [excluded.run_id], schema.SHORT_FORM, note)
            if _is_there(tracker, excluded.run_id, schema.FORM):
                pages |= _attach(tracker, [excluded.run_id], schema.FORM, placeholder_form(note))
            new_tags = {name: verdict for name in tags if name.startswith(schema.TAG_VERDICT)}
            new_tags |= {schema.TAG_VERDICT: verdict, schema.TAG_NOTE: note, **seal_pages(pages)}
            tracker.log(excluded.run_id, tags=new_tags)


def _is_there(tracker: Tracker, run_id: str, path: str) -> bool:
    try:
        return tracker.artifact(run_id, path) is not None
    except RegistryError:
        return True


def _last_epoch(run: RunAudit) -> int:
    return max((len(line) for line in run.record.trajectory.values()), default=1) - 1


def _attach_forms(tracker: Tracker, notes: Notes, folder: Path) -> dict[str, dict[str, str]]:
    """Attach to each run a copy of its group's reporting form (docs/decisions/0026).

    Return a mapping: run id → (file name → digest of the file).
    """
    attached: dict[str, dict[str, str]] = {}
    for group, link in notes.sources.forms:
        page = inline_assets((folder / link.href).read_text(encoding="utf-8"))
        run_ids = [run.record.run_id for run in group.every_run]
        attached |= dict.fromkeys(run_ids, _attach(tracker, run_ids, schema.FORM, page))
    return attached


def _attach(tracker: Tracker, run_ids: Sequence[str], path: str, text: str) -> dict[str, str]:
    """Add one file to the artifacts of the runs; return its name and its digest."""
    with process_ownership.temp_dir("fa_registry-form-") as folder:
        copy = folder / path
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        for run_id in run_ids:
            try:
                tracker.upload(run_id, folder)
            except (UnreadableFile, OutsideStore, StoreRefusal) as error:
                if isinstance(error, StoreRefusal) and error.kind not in (LACKING, KEYLESS):
                    raise
                # if the store names an unusable bucket for one run, the other runs still get their files
                LOG.warning("run %s: cannot add the file %s: %s", run_id, path, error)
        return {path: jsonio.file_digest(copy)}


def _tag_studies(tracker: Tracker, selection: Selection, tags: Mapping[str, str]) -> None:
    """Tag the study runs of the audited runs; keep the study's question in each note."""
    if not selection.study:
        return
    parents = {run.tags.get(schema.TAG_STUDY_RUN) or run.tags.get(schema.TAG_PARENT) for run in selection.runs}
    for study in tracker.search({schema.TAG_KIND: "study", schema.TAG_STUDY: selection.study}):
        if study.run_id in parents:
            question = study.tags.get(schema.TAG_NOTE, "").rpartition(RULE)[2]
            tracker.log(
                study.run_id, tags={**tags, schema.TAG_NOTE: f"{tags[schema.TAG_NOTE].rstrip()}{RULE}{question}"}
            )


def verdict_tags(report: AuditReport, index: int, current_tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags with the verdicts of a run.

    `fa.verdict` is the verdict of the leading edition. There is one tag `fa.verdict.<edition>.<digest>` per edition.

    Args:
        index: Index of the run in the report.
    """
    leading_verdict = report.runs[index].verdict
    tags = {
        name: NO_DIGEST for name in current_tags if name.startswith(f"{schema.TAG_VERDICT}.") and not HAS_DIGEST(name)
    }
    tags |= {schema.verdict_tag(report.edition): leading_verdict.label}
    for opinion in report.opinions:
        tags[schema.verdict_tag(opinion.edition)] = opinion.judgements[index].verdict.label
    return tags | {schema.TAG_VERDICT: verdict_text(leading_verdict, report.edition)}


def outdated_verdict_tags(tags: Mapping[str, str], current_tags: Mapping[str, str]) -> list[str]:
    """Return the names of a run's outdated verdict tags.

    Such a tag comes from an earlier audit by an edition with changed thresholds, and `tags` has a verdict of the same edition with
    its original thresholds.

    Args:
        tags: New tags of the run.
    """
    # for an edition with changed thresholds, the name of the tag ends with .modified
    prefixes = tuple(f"{name}." for name in tags if name.startswith(schema.TAG_VERDICT) and HAS_DIGEST(name))
    return [name for name in current_tags if name.startswith(prefixes) and name not in tags]


def verdict_text(verdict: Verdict, edition: EditionReference) -> str:
    """Return the label of a verdict, for example `PASS` or `PASS (mine 1a2b3c4d)`.

    The part in parentheses is added if the edition is not built-in or has changed thresholds. `mine` means the user's edition, and
    `1a2b3c4d` is the start of the edition's digest.
    """
    mark = verdict_mark(edition)
    return f"{verdict.label} ({mark})" if mark else verdict.label


def first_fire_tags(run: RunAudit, report: AuditReport, current_tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags fa.first_fire.<rule>: the first epoch at which each rule fired.

    The rules are those of the leading edition.
    """
    # the current tags may come from another edition that has other rules with the same names
    edition_text = signature(report.edition)
    tags = {schema.TAG_FIRST_FIRE_BY: edition_text}
    for finding in run.findings:
        name = schema.first_fire_tag(finding.rule)
        if finding.first_fire is not None:
            tags[name] = str(finding.first_fire)
        elif name in current_tags and current_tags.get(schema.TAG_FIRST_FIRE_BY) != edition_text:
            tags[name] = f"none by {edition_text}"
    return tags


def study_reference(selector: RunSelector, problems: list[str]) -> Reference | None:
    """Return the published reference values of a study, or None if the study has none.

    The values are read from the folder of study.toml. Errors are appended to `problems`.
    """
    if not selector.study:
        return None
    try:
        folder = selector.file.path.parent
    except (UnknownName, InvalidFields):  # `checked_terms` reports this error
        return None
    if not (folder / FILE).is_file():
        return None
    try:
        return load_reference(folder.resolve())
    except InvalidFields as error:
        problems += error.problems
        return None
