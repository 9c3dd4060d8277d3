"""Checks of a recorded audit: the verdicts and pages of the audit are computed again.

The owner of a store can replace tags, digests and pages. The owner cannot change how an edition judges the recorded
metrics, or which bytes this package renders from a report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fa_registry import jsonio, process_ownership
from fa_registry.audits.publication import verdict_tags
from fa_registry.audits.second_judgement import SHOWN, first_lines
from fa_registry.errors import IntegrityError, RegistryError
from fa_registry.metrics import declared_fields
from fa_registry.protocol.integrity import ONLY_IN_TRAINING, compare_records
from fa_registry.records import AuditReport, Integrity, RunRecord
from fa_registry.reporting.pages.form import inline_assets, placeholder_form
from fa_registry.reporting.pages.notes import Notes, not_judged_text
from fa_registry.reporting.render import OWN_TEMPLATES, render_report, renderer
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.page_digests import check_audit_pages
from fa_registry.tracking.reader import read_record

FORM = re.compile(r"forms/[^/]+\.md")  # users write into these files, so their text is kept when pages are rendered
# fields that come from a run's files
RECORDED = ("spec", "status", "setting", "digests", "feedback", "provenance", "trajectory", "by_site")
# conventions that decide verdicts; the others describe the machine, which may be another one
JUDGED_BY = ("chance", "classes", "test_samples", "test_samples_in_train", "eval_samples", "eval_digest", "stream")


def outcome_of(check: Callable[[], Integrity]) -> Integrity:
    """Return the outcome of `check`; convert errors to outcomes.

    An IntegrityError becomes `mismatch`; any other RegistryError becomes `unverifiable`.
    """
    try:
        return check()
    except RegistryError as error:
        state = "mismatch" if isinstance(error, IntegrityError) else "unverifiable"
        return Integrity(state, (str(error),))


def check_record(tracker: Tracker, run: StoredRun, reported: RunRecord) -> Integrity:
    """Compare a record of a report with the files of its run.

    Raises:
        IntegrityError: A file of the run is missing or was changed.
    """
    recorded = read_record(tracker, run)
    differing = [
        name
        for name in RECORDED
        if jsonio.digest_of(getattr(recorded, name)) != jsonio.digest_of(getattr(reported, name))
    ]
    conventions = [record.measurements.conventions for record in (recorded, reported)]
    facts = [{name: one.get(name) for name in JUDGED_BY} | declared_fields(one) for one in conventions]
    differing += [name for name in sorted({*facts[0], *facts[1]}) if facts[0].get(name) != facts[1].get(name)]
    recorded_scalars, reported_scalars = recorded.measurements.scalars, reported.measurements.scalars
    differing += [name for name in ONLY_IN_TRAINING if recorded_scalars.get(name) != reported_scalars.get(name)]
    comparison = compare_records(recorded, reported)
    details = [f"the report's {name} differs from the value that the run recorded" for name in differing]
    details += [f"{check.subject}: {check.detail}" for check in recorded.integrity.checks if check.outcome == "differs"]
    details += comparison.details if comparison.state == "mismatch" else ()
    if details:
        return Integrity("mismatch", first_lines(details))
    if comparison.state != "verified":
        return Integrity(comparison.state, comparison.details)
    if extra := sorted(_metrics(reported) - _metrics(recorded)):
        text = f"the report has metrics that the run did not record: {', '.join(first_lines(extra))}"
        return Integrity("unverifiable", (f"{text}; `fa-registry audit` recomputes the metrics",))
    return Integrity(
        "verified", ("no artifact has changed since the audit, and all metrics equal the values that the run recorded",)
    )


def _metrics(record: RunRecord) -> set[str]:
    measured = record.measurements
    return {name for metrics in (measured.sites, measured.scalars) for name in metrics} - set(ONLY_IN_TRAINING)


def check_records(tracker: Tracker, report: AuditReport) -> Integrity:
    """Compare every record of the report with the files of its run, and return the worst outcome."""
    records = [run.record for run in report.runs]
    checks = [lambda of=record: check_record(tracker, tracker.get(of.run_id), of) for record in records]
    outcomes = list(zip(records, map(outcome_of, checks), strict=True))
    for state in ("mismatch", "unverifiable"):
        found = [(record, outcome.details) for record, outcome in outcomes if outcome.state == state]
        if found:
            return Integrity(
                state, first_lines([f"run {record.run_id}: {'; '.join(details)}" for record, details in found])
            )
    return Integrity("verified", (f"the report's records of all {len(outcomes)} runs match the files of the runs",))


def is_same_release(audit: StoredRun) -> bool:
    """Return whether the installed code judged the audit and rendered its pages."""
    return audit.tags.get(schema.TAG_RENDERER, "").removesuffix(OWN_TEMPLATES) == renderer()


@contextmanager
def rendered_again(tracker: Tracker, audit: StoredRun, report: AuditReport) -> Iterator[Path]:
    """Yield a temporary folder with newly rendered pages; text that users wrote into forms is kept."""
    with process_ownership.temp_dir("fa_registry-pages-") as out:
        for name in filter(FORM.fullmatch, check_audit_pages(tracker, audit)):
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_bytes(tracker.artifact(audit.run_id, name).read_bytes())
        render_report(report, out)
        yield out


def check_pages(tracker: Tracker, audit: StoredRun, out: Path) -> Integrity:
    """Compare the audit's recorded pages byte by byte with the newly rendered pages in the folder `out`."""
    recorded = set(check_audit_pages(tracker, audit)) - {schema.PAGE_DIGESTS}
    rendered = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    names = sorted(recorded | rendered.keys())
    stored = {name: _text(tracker.artifact(audit.run_id, name)) for name in names}
    differing = [name for name in names if stored[name] is None or stored[name] != rendered.get(name)]
    if differing:
        text = f"{len(differing)} of {len(names)} pages differ from newly rendered pages"
        return _other_bytes(audit, f"{text}: {', '.join(differing[:SHOWN])}")
    return Integrity("verified", (f"all {len(names)} pages have the same bytes as newly rendered pages",))


def _other_bytes(audit: StoredRun, text: str) -> Integrity:
    """Return the result for pages that differ from the newly rendered pages.

    The state is `mismatch` if the installed code rendered the stored pages, else `unverifiable`.
    """
    rendered_by, installed = audit.tags.get(schema.TAG_RENDERER, ""), renderer()
    if rendered_by == installed:
        return Integrity("mismatch", (text,))
    if rendered_by.endswith(OWN_TEMPLATES):
        return Integrity("unverifiable", (f"{text}; the pages can be rendered again only with the user's templates",))
    origin = "the renderer was not recorded"
    if rendered_by:
        origin = f"the pages were rendered by {rendered_by}; the installed release is {installed}"
    return Integrity("unverifiable", (f"{text}; {origin}, and another release or machine can render other bytes",))


def check_attached(tracker: Tracker, audit: StoredRun, notes: Notes, run: StoredRun, out: Path) -> Integrity:
    """Compare newly rendered pages in the folder `out` with the pages that the audit attached to a run."""
    expected = _attached_pages(tracker, audit, notes, run, out)
    stored_pages = {name: tracker.artifact(run.run_id, name) for name in schema.ADDED_BY_AUDITS}
    differing = [name for name, path in stored_pages.items() if _text(path) != expected.get(name)]
    if differing:
        text = f"attached pages that differ from newly rendered pages of audit {audit.run_id}: {', '.join(differing)}"
        return _other_bytes(audit, text)
    return Integrity("verified", ("the attached pages have the same bytes as newly rendered pages",))


def _text(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None


def _attached_pages(tracker: Tracker, audit: StoredRun, notes: Notes, run: StoredRun, out: Path) -> dict[str, bytes]:
    audit_link, report = tracker.link(audit.run_id, schema.AUDIT_PAGE), notes.sources.report
    judged = {entry.record.run_id: entry for entry in report.runs}.get(run.run_id)
    if judged is None:
        (excluded,) = [entry for entry in report.excluded if entry.run_id == run.run_id]
        note = notes.of_excluded(excluded, audit_link)
        has_form = tracker.artifact(run.run_id, schema.FORM) is not None
        forms = {schema.FORM: placeholder_form(note)} if has_form else {}
    else:
        link = notes.forms.get(run.run_id)
        note = notes.of_run(judged, tracker.link(run.run_id, schema.FORM) if link else "", audit_link)
        forms = {schema.FORM: inline_assets((out / link.href).read_text(encoding="utf-8"))} if link else {}
    return {name: text.encode() for name, text in {schema.SHORT_FORM: note, **forms}.items()}


def verdict_tag_differences(report: AuditReport, run: StoredRun) -> list[str]:
    """Compare the tags `fa.verdict…` and `fa.proof` of a run with the report; return the differences."""
    expected = expected_verdict_tags(report, run)
    return [
        f"run {run.run_id} ({run.name}): tag {name} is {run.tags.get(name, 'not set')!r}, but the audit has {value!r}"
        for name, value in expected.items()
        if run.tags.get(name) != value
    ]


def expected_verdict_tags(report: AuditReport, run: StoredRun) -> dict[str, str]:
    """Return the tags `fa.verdict…` and `fa.proof` that the audit set on the run.

    The result is empty if the run is not in the report.
    """
    for index, judged in enumerate(report.runs):
        if judged.record.run_id == run.run_id:
            return verdict_tags(report, index)
    for excluded in report.excluded:
        if excluded.run_id == run.run_id:
            names = filter(schema.is_verdict_tag, run.tags)
            return dict.fromkeys(names, not_judged_text(excluded))
    return {}
