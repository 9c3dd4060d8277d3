"""Writing an audit down: a run of its own with the pages, and what it found on every run it audited and on its study."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fa_registry import jsonio
from fa_registry.commands.editions import signature
from fa_registry.commands.looks import looks_of
from fa_registry.commands.selection import Selection
from fa_registry.protocol.shipped import edition_words, verdict_mark
from fa_registry.records import SCHEMA, AuditReport, EditionReference, RunAudit, Verdict
from fa_registry.reporting.notes import Notes, not_judged
from fa_registry.reporting.standing_alone import in_place_of_a_form, standing_alone
from fa_registry.tracking import schema
from fa_registry.tracking.base import Point, Tracker
from fa_registry.tracking.writer import process_tag

NO_DIGEST = "not known by which rules: an older release set this tag"
HAS_DIGEST = re.compile(r".*\.[0-9a-f]{8}(\.modified)?").fullmatch
RULE = "\n\n---\n\n"  # in a study's note, between what its newest audit found and what the study asks


def log_audit(
    tracker: Tracker, report: AuditReport, pages: Sequence[Path], out: Path, selection: Selection, adopted: str
) -> str:
    """One audit run with the pages as artifacts (or the run `adopted`).

    Every audited run gets its verdicts, first fires, margin, note and form, one that could not be judged gets told so; the
    study's own run gets a note.
    """
    tags = {
        schema.TAG_KIND: "audit",
        schema.TAG_SCHEMA: str(SCHEMA),
        schema.TAG_STATUS: "running",
        schema.TAG_PROCESS: process_tag(),
        schema.TAG_STUDY: selection.study,
        schema.TAG_EDITION: edition_words(report.edition),
        schema.TAG_AUDIT: jsonio.digest_of(report),
    }
    run_id = tracker.adopt(adopted, report.title, tags, {}) if adopted else tracker.create(report.title, tags, {})
    status, state = "failed", "FAILED"
    try:
        _upload(tracker, run_id, pages, out)
        notes = Notes(report)
        found = notes.of_audit(tracker.link(run_id, ""), tracker.table())
        tracker.log(run_id, tags={schema.TAG_NOTE: found})
        _tell_runs(tracker, report, notes, run_id, selection)
        _tell_excluded(tracker, report, notes, run_id)
        _attach_forms(tracker, notes, out)
        _tell_studies(tracker, selection, {schema.TAG_NOTE: found, schema.TAG_REPORT: run_id})
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


def _tell_runs(tracker: Tracker, report: AuditReport, notes: Notes, audit_id: str, selection: Selection) -> None:
    before = {run.run_id: run for run in selection.runs}
    whole = tracker.link(audit_id, "index.html")
    looks = looks_of([run.record for run in report.runs], selection.runs).tags
    for place, run in enumerate(report.runs):
        run_id = run.record.run_id
        form = tracker.link(run_id, schema.FORM) if run_id in notes.forms else ""
        tags = {**verdict_tags(report, place, before[run_id].tags), **fire_tags(run, report, before[run_id].tags)}
        tags |= {schema.TAG_NOTE: notes.of_run(run, form, whole), schema.TAG_REPORT: audit_id}
        tags |= {schema.TAG_LOOKS: looks[run_id]} if run_id in looks else {}
        margin = notes.margin(run)
        # another audit has mostly found the same, and a metric costs the store as much as all tags
        known = margin is None or margin == before[run_id].metrics.get(schema.MARGIN)
        tracker.log(run_id, [] if known else [Point(schema.MARGIN, margin, _last_epoch(run))], tags)


def _tell_excluded(tracker: Tracker, report: AuditReport, notes: Notes, audit_id: str) -> None:
    """A run that could not be judged must not go on showing the verdict of an older audit.

    A run at work, or one that may be, is left to whoever trains it: its note and tags are still being written. So is
    TAG_REPORT, which names the audit that judged.
    """
    whole = tracker.link(audit_id, "index.html")
    for one in report.excluded:
        tags = tracker.get(one.run_id).tags if one.run_id else {}
        sealed = one.kind == "integrity" and schema.TAG_ARTIFACTS in tags  # whatever its status tag was made to say
        if sealed or tags.get(schema.TAG_STATUS) in schema.ENDED_STATUSES:
            said = not_judged(one)
            verdicts = {name: said for name in tags if name.startswith(schema.TAG_VERDICT)}
            note = notes.of_excluded(one, whole)
            tracker.log(one.run_id, tags={**verdicts, schema.TAG_VERDICT: said, schema.TAG_NOTE: note})
            if tracker.artifact(one.run_id, schema.FORM):
                _attach(tracker, [one.run_id], in_place_of_a_form(note))


def _last_epoch(run: RunAudit) -> int:
    return max((len(line) for line in run.record.trajectory.values()), default=1) - 1


def _attach_forms(tracker: Tracker, notes: Notes, out: Path) -> None:
    """To each run a copy of its group's form, so that it shows among the run's own artifacts (docs/decisions/0026)."""
    for group, link in notes.sources.forms:
        page = standing_alone((out / link.href).read_text(encoding="utf-8"))
        _attach(tracker, [run.record.run_id for run in group.runs], page)


def _attach(tracker: Tracker, run_ids: Sequence[str], page: str) -> None:
    with tempfile.TemporaryDirectory(prefix="fa_registry-form-") as folder:
        copy = Path(folder) / schema.FORM
        copy.parent.mkdir()
        copy.write_text(page, encoding="utf-8")
        for run_id in run_ids:
            tracker.upload(run_id, Path(folder))


def _tell_studies(tracker: Tracker, selection: Selection, tags: Mapping[str, str]) -> None:
    """The study's own runs under which audited runs were trained; what their notes said before stays below the rule."""
    if not selection.study:
        return
    parents = {run.tags.get(schema.TAG_PARENT) for run in selection.runs}
    for study in tracker.search({schema.TAG_KIND: "study", schema.TAG_STUDY: selection.study}):
        if study.run_id in parents:
            asks = study.tags.get(schema.TAG_NOTE, "").rpartition(RULE)[2]
            tracker.log(study.run_id, tags={**tags, schema.TAG_NOTE: f"{tags[schema.TAG_NOTE].rstrip()}{RULE}{asks}"})


def verdict_tags(report: AuditReport, place: int, before: Mapping[str, str]) -> dict[str, str]:
    """fa.verdict, the leading edition's word on the report's run at `place`, and fa.verdict.<edition>.<digest> by every edition.

    before: the run's tags; those of older releases name no digest, and whose verdict they hold cannot be known any more.
    """
    leading = report.runs[place].verdict
    said: list[tuple[EditionReference, Verdict]] = [
        (report.edition, leading),
        *((one.edition, one.judgements[place].verdict) for one in report.opinions),
    ]
    old = {name: NO_DIGEST for name in before if name.startswith(f"{schema.TAG_VERDICT}.") and not HAS_DIGEST(name)}
    tags = {schema.verdict_tag(edition): verdict.label for edition, verdict in said}
    return old | tags | {schema.TAG_VERDICT: marked(leading, report.edition)}


def marked(verdict: Verdict, edition: EditionReference) -> str:
    """A verdict where it stands without its edition: `PASS`, or `PASS (mine 1a2b3c4d)` by one that is not shipped."""
    mark = verdict_mark(edition)
    return f"{verdict.label} ({mark})" if mark else verdict.label


def fire_tags(run: RunAudit, report: AuditReport, before: Mapping[str, str]) -> dict[str, str]:
    """fa.first_fire.<rule> by the leading edition. before: the run's tags, which may tell of other rules of the same names."""
    by = signature(report.edition)
    tags = {schema.TAG_FIRST_FIRE_BY: by}
    for finding in run.findings:
        name = schema.first_fire_tag(finding.rule)
        if finding.first_fire is not None:
            tags[name] = str(finding.first_fire)
        elif name in before and before.get(schema.TAG_FIRST_FIRE_BY) != by:
            tags[name] = f"none by {by}"
    return tags
