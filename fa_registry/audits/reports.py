"""The commands `report` and `diff`, and functions that read audit reports."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fa_registry import jsonio
from fa_registry.audits.options import AuditSource, ReportPages, checked_pages
from fa_registry.audits.recorded_verdicts import LARGEST
from fa_registry.errors import IntegrityError, InvalidFields, UnknownName, UsageError, unknown_name_text
from fa_registry.protocol.verdict import is_intact
from fa_registry.records import AuditReport
from fa_registry.reporting.diff import AuditDiff, audit_diff
from fa_registry.safe_files import UnreadableFile, resolve_user_path
from fa_registry.schema_number import KEY, check_schema
from fa_registry.studies.options import RunSelector
from fa_registry.studies.study_files import find, name_in_store
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker

LOG = logging.getLogger(__name__)
USUAL = f"reports/{schema.AUDIT_REPORT}"
NUMBER = re.compile("[0-9]{1,9}")
WHOLE = re.compile("[0-9]{1,19}")  # number of epochs, or a seed


def run_report(file: str, source: AuditSource, pages: ReportPages, store: str = "") -> list[Path]:
    """Render the pages of an audit report, and return the paths of the pages; see `api.report`.

    If `file` and `source.study` are empty, `reports/audit.json` is read. The records are judged again before a page is written.

    Raises:
        IntegrityError: the recorded metrics give other verdicts than the report.
    """
    if file and source.study:
        raise UsageError("expected either REPORT or --study, found both")
    problems: list[str] = []
    checked_pages(pages, problems)
    problems += _wrong_source(source)
    if problems:
        raise InvalidFields("report", problems)
    if source.study:
        from fa_registry.tracking.stores import open_tracker  # slow, because it imports MLflow

        report = newest_report(open_tracker(store, create=False), source)[1]
    else:
        report = load_report(existing(file or USUAL))
    from fa_registry.reporting.render import render_report  # imports matplotlib and pandas, which `diff` does not need

    return render_report(_judged_again(report), Path(pages.out), pages.own_templates, pages.columns)


def _judged_again(report: AuditReport) -> AuditReport:
    """Return the report if judging its records again gives its verdicts.

    If an edition of the report is not built in, its verdicts cannot be computed. Then the report has a remark that states this.

    Raises:
        IntegrityError: the recorded metrics give other verdicts or findings.
    """
    from fa_registry.audits.second_judgement import check_verdicts  # imports numpy and scipy

    checked = check_verdicts(report, same_release=True)
    if checked.state == "mismatch":
        raise IntegrityError(
            f"the report is not rendered, because its verdicts are wrong: {'; '.join(checked.details)}"
        )
    remarks = () if checked.state == "verified" else checked.details
    return dataclasses.replace(
        report, remarks=(*report.remarks, *(f"{text[:1].upper()}{text[1:]}." for text in remarks))
    )


def _wrong_source(source: AuditSource) -> Iterator[str]:
    """Yield one error per field of the source that is no number, or that has no study."""
    for name, values in (("epochs", [source.epochs] if source.epochs else []), ("seeds", source.seeds)):
        if values and not source.study:
            yield f"{name}: expected --study, whose audits have {name}; found no study"
        yield from (
            f"{name}: expected a whole number, found {value!r}" for value in values if not WHOLE.fullmatch(str(value))
        )


def newest_report(tracker: Tracker, source: AuditSource) -> tuple[StoredRun, AuditReport]:
    """Return the MLflow run of the newest complete audit of a study, and the report of this audit.

    The study is given by its name, or by the path of its study.toml or of its folder. If the source has epochs or seeds, the
    newest audit of runs with these epochs and seeds is returned.

    Raises:
        UsageError: the store has no such audit.
        IntegrityError: the report is missing or was changed.
    """
    study, name = source.study, name_in_store(source.study)
    audits = [audit for audit in audits_of(tracker, name) if audit.tags.get(schema.TAG_STATUS) == "complete"]
    if not audits:
        raise UsageError(f"study {study}: no complete audit in {tracker.uri}; {_next_step(tracker, source, name)}")
    command = f"`fa-registry audit --study {shlex.quote(study)}`"
    other_reports = []
    for audit in audits:
        report = recorded_report(tracker, audit.run_id, command)
        if _is_asked_for(report, source):
            _warn_of_changed_pages(tracker, audit, command)
            return audit, report
        other_reports.append(report)
    raise UsageError(f"study {study}: no audit of runs with these epochs and seeds; {_audited(name, other_reports)}")


def _is_asked_for(report: AuditReport, source: AuditSource) -> bool:
    """Return whether the judged runs have the epochs and exactly the seeds of the source."""
    specs = [run.record.spec for run in report.runs]
    has_epochs = not source.epochs or {spec.setting.epochs for spec in specs} == {int(source.epochs)}
    return has_epochs and (not source.seeds or {spec.seed for spec in specs} == set(map(int, source.seeds)))


def _audited(study: str, reports: Sequence[AuditReport]) -> str:
    """Return a text that names the epochs and seeds of the study's audits."""
    from fa_registry.audits.trained_options import TrainedOptions, advice_text  # imports torch

    seeds: dict[tuple[int, tuple[int, ...]], None] = {}
    for report in reports:
        specs = [run.record.spec for run in report.runs]
        for epochs in {spec.setting.epochs for spec in specs}:
            seeds[epochs, tuple(sorted({spec.seed for spec in specs}))] = None
    return advice_text(study, "audits", [TrainedOptions(*values) for values in seeds])


def _next_step(tracker: Tracker, source: AuditSource, name: str) -> str:
    """Return a text with the command that audits a study, or the names of known studies."""
    study = source.study
    has_runs = bool(tracker.search({schema.TAG_KIND: "run", schema.TAG_STUDY: name}, most=1))
    try:
        find(study)
    except UnknownName:
        if has_runs:
            return "`fa-registry audit --study PATH` audits the study; PATH is the path of its study.toml"
        audits = tracker.search({schema.TAG_KIND: "audit"})
        return unknown_name_text("study", study, {audit.tags.get(schema.TAG_STUDY, "") for audit in audits} - {""})
    if not has_runs:
        return f"`fa-registry run {shlex.quote(study)}` trains and audits the study"
    flags = _flags(tracker, source)
    return f"`fa-registry audit --study {shlex.quote(study)}{flags}` audits the study"


def _flags(tracker: Tracker, source: AuditSource) -> str:
    """Return the options with which `audit` selects finished runs.

    These are the options of the source, or those of the newest runs in the store.
    """
    from fa_registry.audits.trained_options import has_finished_runs, trained_options  # imports torch

    asked = {"epochs": source.epochs, "seeds": list(source.seeds)}
    selector = RunSelector(source.study, overrides=asked)
    if has_finished_runs(tracker, selector):
        values = {"epochs": str(source.epochs), "seeds": ",".join(map(str, source.seeds))}
        return "".join(f" --{option} {value}" for option, value in values.items() if value)
    options = trained_options(tracker, selector)
    return f" {options[0].flags}" if options else ""


def _warn_of_changed_pages(tracker: Tracker, audit: StoredRun, command: str) -> None:
    """Log a warning if a page in the store was changed after the audit."""
    from fa_registry.tracking.page_digests import check_audit_pages

    try:
        check_audit_pages(tracker, audit)
    except IntegrityError as error:
        LOG.warning(
            "%s. The pages in the store differ from the pages that the audit wrote. The pages that are "
            "rendered now come from the recorded report of the audit. %s writes correct pages to the store",
            error,
            command,
        )


def audits_of(tracker: Tracker, study: str) -> list[StoredRun]:
    """Return the MLflow runs of a study's audits, newest first."""
    audits = tracker.search({schema.TAG_KIND: "audit", schema.TAG_STUDY: study})
    return sorted(audits, key=_number, reverse=True)  # by number and not by time: a machine's clock may be wrong


def numbered(audits: Sequence[StoredRun]) -> dict[str, str]:
    """Return the tag that contains the number of the next audit, after `audits`, newest first."""
    return {schema.TAG_AUDIT_NUMBER: str(1 + max(map(_number, audits[:1]), default=0))}


def _number(audit: StoredRun) -> int:
    tag = audit.tags.get(schema.TAG_AUDIT_NUMBER, "")
    return int(tag) if NUMBER.fullmatch(tag) else 0


def recorded_report(tracker: Tracker, audit_run_id: str, command: str) -> AuditReport:
    """Return the report of an audit run after comparing the report with its recorded digest.

    Args:
        audit_run_id: id of the MLflow run of the audit.
        command: command that repeats the audit, for the error message.

    Raises:
        IntegrityError: the report is missing or was changed.
    """
    audit = tracker.get(audit_run_id)
    path = tracker.artifact(audit_run_id, schema.AUDIT_REPORT)
    if path is None:
        raise IntegrityError(f"audit {audit_run_id}: {schema.AUDIT_REPORT} is missing; audit the runs again: {command}")
    from fa_registry.tracking.page_digests import check_audit_pages  # slow, because it imports torch

    check_audit_pages(tracker, audit, [schema.AUDIT_REPORT])
    report = load_report(path)
    # the digest is that of the JSON text, which may lack fields with a default
    digest = jsonio.digest_of(jsonio.read_json(path, LARGEST))
    if audit.tags.get(schema.TAG_AUDIT) != digest:
        raise IntegrityError(
            f"audit {audit_run_id}: expected a report with digest {audit.tags.get(schema.TAG_AUDIT, 'none')}, found {digest}; "
            f"audit the runs again: {command}"
        )
    return report


def existing(file: str, kinds: str = schema.AUDIT_REPORT) -> Path:
    """Return the path of a file; if it does not exist, raise UsageError with the expected `kinds`."""
    if os.path.isfile(file):  # Path.is_file raises for a name that is too long
        return Path(file)
    if os.path.isfile(os.path.join(file, schema.AUDIT_REPORT)):
        raise UsageError(f"{file}: expected a file, found a folder; name the file {Path(file) / schema.AUDIT_REPORT}")
    if os.path.lexists(file):
        raise UsageError(f"{file}: expected an {kinds}, found no file but a folder or a device; name another")
    if file.endswith(".zip"):
        raise UsageError(f"{file}: no such file; `fa-registry bundle --study NAME` writes a bundle")
    raise UsageError(
        f"{file}: no such file; `fa-registry audit --study NAME` writes a report; "
        "`fa-registry report --study NAME` reads the report from the store"
    )


def load_report(path: Path) -> AuditReport:
    """Read an audit.json without importing torch and MLflow.

    Raises:
        InvalidFields: the file is not an audit report.
        UsageError: the report has another schema number, or none.
    """
    subject = f"report {path}"
    try:
        raw = jsonio.read_json(resolve_user_path(path), LARGEST)
    except UnreadableFile as error:
        raise InvalidFields(subject, [f"file: {error.reason}"]) from error
    if isinstance(raw, Mapping):
        check_schema(
            subject, raw.get(KEY), "audit the runs again, or read the report with the fa_registry that wrote it"
        )
    report = jsonio.decode(AuditReport, raw, subject)
    if problems := list(_incomplete(report)):
        raise InvalidFields(subject, problems)
    return report


def _incomplete(report: AuditReport) -> Iterator[str]:
    """Yield one error per duplicate or mismatched run, and one error per edition with wrong runs.

    Each edition must have judged the runs of the report, in the same order.
    """
    ids = [run.record.run_id for run in report.runs]
    for run_id, count in sorted(Counter(ids).items()):
        if count > 1:
            yield f"runs: expected every run once, found {run_id} {count} times"
    for index, run in enumerate(report.runs):
        if not is_intact(run.record):  # an audit excludes such a run
            yield f"runs[{index}].record.integrity.state: expected no mismatch among the judged runs, found run {run.record.run_id}"
    for index, opinion in enumerate(report.opinions):
        judged_ids = [item.run_id for item in opinion.judgements]
        if judged_ids != ids:
            description = f"{len(judged_ids)} of {len(ids)} runs"
            for found, expected in zip(judged_ids, ids, strict=False):
                if found != expected:
                    description = f"run {found} where run {expected} is expected"
                    break
            yield f"opinions[{index}].judgements: expected the runs of the report in the same order, found {description}"


def run_diff(a: str, b: str) -> AuditDiff:
    """Compare two audits and return the differences.

    The arguments `a` and `b` are paths of an audit.json or of its folder.

    Raises:
        InvalidFields: a file is missing or is not an audit report.
    """
    problems: list[str] = []
    reports = [_report(name, field, problems) for name, field in ((a, "AUDIT_A"), (b, "AUDIT_B"))]
    if problems:
        raise InvalidFields("diff", problems)
    return audit_diff(*reports)


def _report(name: str, field: str, problems: list[str]) -> AuditReport | None:
    """Return the report in a file or folder, or append an error to `problems` and return None."""
    path = Path(name) / schema.AUDIT_REPORT if os.path.isdir(name) else Path(name)
    if not os.path.isfile(path):
        problems.append(
            f"{field}: expected an audit.json, or a folder that contains an audit.json; there is no file {path}"
        )
        return None
    try:
        return load_report(path)
    except InvalidFields as error:
        problems += [f"{field} {path.name}: {problem}" for problem in error.problems]
    except UsageError as error:
        problems.append(f"{field}: {error}")
    return None
