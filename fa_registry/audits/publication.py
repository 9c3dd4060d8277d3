"""Publication of an audit as a run, and as tags, notes and forms of the audited runs."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fa_registry import jsonio, process_ownership
from fa_registry.audits.reports import audits_of, numbered
from fa_registry.audits.selection import Selection, count_audits, previous_seed_sets
from fa_registry.errors import RegistryError
from fa_registry.interrupts import deferred_interrupts
from fa_registry.protocol.builtin_editions import describe_edition, verdict_mark
from fa_registry.records import AuditReport, EditionReference, RunAudit, Verdict
from fa_registry.reporting.pages.form import inline_assets, placeholder_form
from fa_registry.reporting.pages.notes import Notes, not_judged_text
from fa_registry.safe_files import UnreadableFile
from fa_registry.studies.editions import signature
from fa_registry.tracking import schema
from fa_registry.tracking.artifact_location import OutsideStore
from fa_registry.tracking.base import Point, RunUpdate, Tracker
from fa_registry.tracking.lease import LeaseHolder, heartbeat_tag
from fa_registry.tracking.page_digests import page_digests_tag, write_page_digests
from fa_registry.tracking.store_errors import KEYLESS, LACKING, StoreRefusal
from fa_registry.tracking.stores import mlflow_page

LOG = logging.getLogger(__name__)
RULE = "\n\n---\n\n"  # separates the findings of the newest audit from the study's question, in the study's note


def log_audit(
    tracker: Tracker, report: AuditReport, folder: Path, selection: Selection, adopted: str, rendered_by: str
) -> tuple[str, str]:
    """Log the audit as one run with the pages as artifacts, and tag the audited runs.

    If the audit left out complete runs of the judged methods and settings, the runs keep the tags and pages of earlier audits.
    Otherwise, every judged run gets its verdicts, the first epochs at which rules fired, its margin, a note and the reporting form
    of its group. A run that could not be judged gets a note with the reason. The study's run gets a note.

    Args:
        folder: Folder that contains only the pages.
        adopted: Id of an existing run that records the audit. If empty, a new run is created.
        rendered_by: Text from `reporting.render.renderer`, which identifies the code and templates that rendered the pages.

    Returns:
        The id of the audit's run, and the address of the MLflow page.
    """
    tags = {
        schema.TAG_KIND: "audit",
        schema.TAG_STATUS: "running",
        schema.TAG_PROCESS: process_ownership.process_tag(),
        schema.TAG_STUDY: selection.study,
        schema.TAG_EDITION: describe_edition(report.edition),
        schema.TAG_AUDIT: jsonio.digest_of(report),
        schema.TAG_RENDERER: rendered_by,
        **heartbeat_tag(0, process_ownership.LEASE),
        **(numbered(audits_of(tracker, selection.study)) if selection.study else {}),
    }
    status, state, run_id = "failed", "FAILED", adopted
    try:
        with deferred_interrupts():  # an interrupt before the id is known would leave a run that nothing can end
            created = (report.title, tags, {})
            run_id = tracker.adopt(adopted, *created) if adopted else tracker.create(*created)
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
    count = {schema.TAG_AUDITS: str(count_audits(selection.runs))}
    # first, because the author has seen the results even if the next steps fail
    tracker.log_all(RunUpdate(run.run_id, count) for run in selection.runs)
    page_tags = write_page_digests(folder)
    tracker.upload(run_id, folder)
    tracker.log(run_id, tags=page_tags)
    notes, is_selection = Notes(report), bool(report.left_out)
    if is_selection:  # a verdict on some of the seeds replaces no verdict
        _tag_seed_sets(tracker, report, selection)
    else:
        forms = _attach_forms(tracker, notes, folder)
        tracker.log_all(_changes(tracker, report, notes, run_id, selection, forms))
    # the runs are tagged before, because the page has columns for verdicts, margins and first epochs of rules
    judged = {run.run_id for run in selection.runs}
    page = mlflow_page(tracker, selection.study, selection.runs[0].experiment, judged)
    note = notes.of_audit(tracker.link(run_id, ""), page)
    tracker.log(run_id, tags={schema.TAG_NOTE: note})
    if not is_selection:
        _tag_excluded(tracker, report, notes, run_id)
        _tag_studies(tracker, selection, {schema.TAG_NOTE: note, schema.TAG_REPORT: run_id})
    return page


def _tag_seed_sets(tracker: Tracker, report: AuditReport, selection: Selection) -> None:
    """Log to every judged run which sets of seeds were judged: the author has seen an interim analysis."""
    _, seed_sets = previous_seed_sets([run.record for run in report.runs], selection.runs)
    tracker.log_all(RunUpdate(run_id, {schema.TAG_INTERIM_ANALYSES: text}) for run_id, text in seed_sets.items())


def _changes(
    tracker: Tracker,
    report: AuditReport,
    notes: Notes,
    audit_id: str,
    selection: Selection,
    forms: Mapping[str, Mapping[str, str]],
) -> Iterator[RunUpdate]:
    """Attach its note to every judged run, and yield the tags and the margin of this run."""
    stored_runs = {run.run_id: run for run in selection.runs}
    audit_link = tracker.link(audit_id, schema.AUDIT_PAGE)
    _, interim_tags = previous_seed_sets([run.record for run in report.runs], selection.runs)
    for index, run in enumerate(report.runs):
        run_id = run.record.run_id
        form = tracker.link(run_id, schema.FORM) if run_id in notes.forms else ""
        stored_tags = stored_runs[run_id].tags
        tags = {**verdict_tags(report, index), **first_fire_tags(run, report, stored_tags)}
        note = notes.of_run(run, form, audit_link)
        pages = {**forms.get(run_id, {}), **_attach(tracker, [run_id], schema.SHORT_FORM, note)}
        tags |= {schema.TAG_NOTE: note, schema.TAG_REPORT: audit_id, **page_digests_tag(pages)}
        tags |= {schema.TAG_INTERIM_ANALYSES: interim_tags[run_id]} if run_id in interim_tags else {}
        # an earlier audit usually logged the same margin
        last_epoch = max((len(line) for line in run.record.trajectory.values()), default=1) - 1
        points = [Point(key, schema.shown(value), last_epoch) for key, value in filter(None, [notes.margin(run)])]
        new_points = [point for point in points if point.value != stored_runs[run_id].metrics.get(point.key)]
        yield RunUpdate(run_id, tags, new_points, outdated_verdict_tags(tags, stored_tags))


def _tag_excluded(tracker: Tracker, report: AuditReport, notes: Notes, audit_id: str) -> None:
    """Replace older verdicts in the tags of runs that this audit could not judge."""
    # A run that may still be training is skipped, because a worker may be writing the note and tags of the run.
    # TAG_REPORT is not changed: it names the audit that judged the run. TAG_EXCLUDED names this audit.
    audit_link = tracker.link(audit_id, schema.AUDIT_PAGE)
    for excluded in report.excluded:
        tags = tracker.get(excluded.run_id).tags if excluded.run_id else {}
        recorded = excluded.kind == "integrity" and schema.TAG_ARTIFACTS in tags  # even if the status tag was edited
        if recorded or tags.get(schema.TAG_STATUS) in schema.ENDED_STATUSES:
            verdict, note = not_judged_text(excluded), notes.of_excluded(excluded, audit_link)
            pages = _attach(tracker, [excluded.run_id], schema.SHORT_FORM, note)
            if _is_there(tracker, excluded.run_id, schema.FORM):
                pages |= _attach(tracker, [excluded.run_id], schema.FORM, placeholder_form(note))
            new_tags = {name: verdict for name in tags if schema.is_verdict_tag(name)}
            new_tags |= {schema.TAG_VERDICT: verdict, schema.TAG_PROOF: verdict, schema.TAG_EXCLUDED: audit_id}
            new_tags |= {schema.TAG_NOTE: note, **page_digests_tag(pages)}
            tracker.log(excluded.run_id, tags=new_tags)


def _is_there(tracker: Tracker, run_id: str, path: str) -> bool:
    try:
        return tracker.artifact(run_id, path) is not None
    except RegistryError:
        return True


def _attach_forms(tracker: Tracker, notes: Notes, folder: Path) -> dict[str, dict[str, str]]:
    """Attach to each run a copy of its group's reporting form (decision 17).

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
    data = text.encode()
    for run_id in run_ids:
        try:
            tracker.attach(run_id, path, data)
        except (UnreadableFile, OutsideStore, StoreRefusal) as error:
            if isinstance(error, StoreRefusal) and error.kind not in (LACKING, KEYLESS):
                raise
            # if the store names an unusable bucket for one run, the other runs still get their files
            LOG.warning("run %s: cannot add the file %s: %s", run_id, path, error)
    return {path: hashlib.sha256(data).hexdigest()}


def _tag_studies(tracker: Tracker, selection: Selection, tags: Mapping[str, str]) -> None:
    """Tag the study runs of the audited runs; keep the study's question in each note."""
    if not selection.study:
        return
    parents = {run.tags.get(schema.TAG_STUDY_RUN) for run in selection.runs}
    for study in tracker.search({schema.TAG_KIND: "study", schema.TAG_STUDY: selection.study}):
        if study.run_id in parents:
            question = study.tags.get(schema.TAG_NOTE, "").rpartition(RULE)[2]
            note = f"{tags[schema.TAG_NOTE].rstrip()}{RULE}{question}"
            tracker.log(study.run_id, tags={**tags, schema.TAG_NOTE: note})


def verdict_tags(report: AuditReport, index: int) -> dict[str, str]:
    """Return the tags with the verdicts of a run and with their level of proof.

    `fa.verdict` is the verdict of the leading edition. There is one tag `fa.verdict.<edition>.<digest>` per edition. All editions
    have the same level of proof.
    """
    leading_verdict = report.runs[index].verdict
    tags = {schema.verdict_tag(report.edition): leading_verdict.label}
    for opinion in report.opinions:
        tags[schema.verdict_tag(opinion.edition)] = opinion.judgements[index].verdict.label
    leading = {
        schema.TAG_VERDICT: verdict_text(leading_verdict, report.edition),
        schema.TAG_PROOF: leading_verdict.proof,
    }
    return tags | leading


def outdated_verdict_tags(tags: Mapping[str, str], current_tags: Mapping[str, str]) -> list[str]:
    """Return the names of a judged run's outdated tags; `tags` are the new tags of the run.

    TAG_EXCLUDED is outdated, because this audit could judge the run.
    The verdict tag of an edition with changed thresholds is outdated if an earlier audit set this tag, and if `tags` contains the
    verdict of the same edition with the original thresholds.
    """
    # for an edition with changed thresholds, the name of the tag ends with .modified
    prefixes = tuple(f"{name}." for name in tags if name.startswith(f"{schema.TAG_VERDICT}."))
    outdated = [name for name in current_tags if name.startswith(prefixes) and name not in tags]
    return outdated + [schema.TAG_EXCLUDED] * (schema.TAG_EXCLUDED in current_tags)


def verdict_text(verdict: Verdict, edition: EditionReference) -> str:
    """Return the label of a verdict, for example `PASS` or `PASS (mine 1a2b3c4d)`.

    The part in parentheses is added if the edition is not built-in or has changed thresholds. `mine` means the user's edition,
    and `1a2b3c4d` is the start of the edition's digest.
    """
    mark = verdict_mark(edition)
    return f"{verdict.label} ({mark})" if mark else verdict.label


def first_fire_tags(run: RunAudit, report: AuditReport, current_tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags fa.first_fire.<rule>: first epoch at which a rule of the leading edition fired."""
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
