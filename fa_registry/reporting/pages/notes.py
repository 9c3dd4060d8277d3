"""Notes that an audit writes to MLflow about every run, the audit and the study.

Notes are short and contain links to the pages.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

from fa_registry.metrics import headline_of, headlines_of, table
from fa_registry.protocol.replay_summary import replays_text, series_label
from fa_registry.records import AuditReport, EditionReference, Exclusion, Integrity, RunAudit, Verdict
from fa_registry.reporting.claims import claims
from fa_registry.reporting.pages.form_tables import card
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import (
    audit_columns,
    control_rows,
    control_text,
    finding_rows,
)
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from fa_registry.reporting.view_models import (
    Claim,
    Count,
    Estimate,
    FindingRow,
    Link,
    Row,
    Truncated,
)
from fa_registry.tracking.schema import AUDIT_PAGE

MAX_NOTE = 4000  # characters; MLflow accepts 8000, but a shorter note is easier to read next to a run
MOST_FORMS = 25  # most links in the note of an audit
WORST_FIRST = ("fail", "incomplete", "warn", "pass")
CUT = "\n\n… the rest is in the form."


class Notes:
    """Writer of the notes about the runs of one report.

    Create one instance per report, because the constructor indexes all runs.
    """

    def __init__(self, report: AuditReport):
        self.sources = Sources.of(report)
        self._alone = {group.runs[0].record.run_id for group in self.sources.groups if len(group.runs) == 1}
        self.forms = {run.record.run_id: link for group, link in self.sources.forms for run in group.every_run}
        self._pages = TemplateRenderer()

    def of_run(self, run: RunAudit, form: str = "", audit: str = "") -> str:
        """Return a short version of a run's reporting form in Markdown, with links to the form and the audit."""
        is_only_seed = run.record.run_id in self._alone
        context = note_context(run, self.sources, form, audit, is_only_seed)
        return bounded(self._pages.render("note.md.j2", variables(context)))

    def of_audit(self, base: str = "", table: str = "") -> str:
        """Return the note on the whole audit, with links to its pages and to its table.

        The pages are in the folder with the address `base`; its query, from `?` on, becomes that of each link.
        """
        return bounded(self._pages.render("audit_note.md.j2", variables(audit_note_context(self.sources, base, table))))

    def of_excluded(self, exclusion: Exclusion, audit: str = "") -> str:
        """Return the note on a run that was not judged; it replaces the verdict of an older audit."""
        edition = self.sources.report.edition
        context = ExcludedNoteContext(not_judged_text(exclusion), exclusion.reason, exclusion.run_id, edition, audit)
        return bounded(self._pages.render("excluded_note.md.j2", variables(context)))

    def margin(self, run: RunAudit) -> tuple[str, float] | None:
        """Return the key and the value of the run's margin over its frozen control, or None if undefined."""
        value = self.sources.values.margin(run).reading.value
        return None if value is None else (headline_of(run.record.measurements).margin, value)


def audit_note_context(sources: Sources, base: str = "", table: str = "") -> AuditNoteContext:
    """Return the template variables of the note on the whole audit; the addresses are those of `of_audit`."""
    report = sources.report
    folder, mark, query = base.partition("?")
    links = sorted((link for _, link in sources.forms), key=lambda link: WORST_FIRST.index(link.verdict.outcome))
    counts = Counter(link.verdict.outcome for link in links)
    return AuditNoteContext(
        edition=report.edition,
        selection=report.selection,
        counts=tuple(Count(outcome, counts[outcome]) for outcome in WORST_FIRST if outcome in counts),
        run_count=len(report.runs),
        excluded=len(report.excluded),
        left_out=len(report.left_out),
        audit=base and f"{folder}{AUDIT_PAGE}{mark}{query}",
        table=table,
        query=f"{mark}{query}",
        forms=Truncated.first(
            MOST_FORMS, [dataclasses.replace(link, stem=base and folder + link.stem) for link in links]
        ),
    )


def not_judged_text(exclusion: Exclusion) -> str:
    """Return the text that replaces a verdict: `NOT JUDGED (integrity failure)`.

    It is `NOT JUDGED` if no kind is known.
    """
    kind = "integrity failure" if exclusion.kind == "integrity" else exclusion.kind
    return f"NOT JUDGED ({kind})" if kind else "NOT JUDGED"


def bounded(note: str) -> str:
    """Return the note; a note longer than MAX_NOTE is cut at the end of a line and gets a remark."""
    if len(note) <= MAX_NOTE:
        return note
    return note[: MAX_NOTE - len(CUT)].rpartition("\n")[0].rstrip() + CUT


@dataclass(frozen=True)
class NoteContext:
    """note.md.j2: a short version of a run's reporting form, for MLflow.

    MLflow shows this text as the description of the run.
    """

    method: str
    """the method's label"""
    setting: str
    """the setting's readable name"""
    seed: int
    """the run's seed"""
    run_id: str
    """id of the run"""
    status: str
    """status of the run: complete, diverged or failed"""
    edition: EditionReference
    """the edition (set of rules) that judged the runs"""
    verdict: Verdict
    """verdict of this run, without other seeds"""
    control: str
    """level of proof of the frozen control, such as `control started`, or the reason why it is not proven; empty for a control"""
    headline: tuple[Row[Estimate], ...]
    """the run's headline numbers"""
    findings: tuple[FindingRow, ...]
    """every rule's judgement of this run"""
    claims: tuple[Claim, ...]
    """the claims that this run supports without other seeds"""
    integrity: Integrity
    """whether the logged metrics of the run are confirmed"""
    replays: str
    """whether the audit replayed this training"""
    series_label: str
    """number of per-epoch values that the author stated and the audit did not recompute; empty if there are none"""
    form: str
    """address of the run's reporting form in MLflow; empty if there is none"""
    audit: str
    """address of the audit's first page in MLflow; empty if there is none"""


@dataclass(frozen=True)
class ExcludedNoteContext:
    """excluded_note.md.j2: the description of a run that an audit could not judge."""

    verdict: str
    """`NOT JUDGED`, and the kind of reason why the run was not judged"""
    reason: str
    """why the run could not be judged"""
    run_id: str
    """the run"""
    edition: EditionReference
    """the edition (set of rules) of the audit that could not judge this run"""
    audit: str
    """address of the audit's first page in MLflow; empty if there is none"""


@dataclass(frozen=True)
class AuditNoteContext:
    """audit_note.md.j2: the results of an audit, for its description in MLflow.

    The description of the study's run contains this note too.
    """

    edition: EditionReference
    """the edition (set of rules) that judged the runs"""
    selection: str
    """how the runs were chosen"""
    counts: tuple[Count, ...]
    """number of groups (one method in one setting) by verdict, worst verdict first"""
    run_count: int
    """number of runs that were judged, controls included"""
    excluded: int
    """number of selected runs that could not be judged"""
    left_out: int
    """number of complete runs of the judged methods and settings that were left out"""
    audit: str
    """address of the audit's first page in MLflow; empty if there is none"""
    table: str
    """address of the table of all runs in MLflow; empty if there is none"""
    query: str
    """end of each form's address in MLflow, from `?` on"""
    forms: Truncated[Link]
    """the reporting forms with their addresses in MLflow, worst verdict first"""


def note_context(
    run: RunAudit, sources: Sources, form: str = "", audit: str = "", is_only_seed: bool = True
) -> NoteContext:
    """Return the template variables of a short version of a run's reporting form.

    Args:
        run: The run, which is judged without the other seeds.
        form: Address of the complete reporting form in MLflow.
        audit: Address of the first page of the audit in MLflow.
        is_only_seed: Whether the report contains no other seed of this method in this setting.
    """
    record, report, card_metrics = run.record, sources.report, sources.known
    columns = audit_columns([run], table("note", headlines_of([record])), card_metrics)
    reported = claims([run], has_all_runs=is_only_seed, card=card(report, "methods", record.spec.method))
    headline = tuple(
        Row(column.name, (sources.values.estimate([run], column),), words=column.label) for column in columns
    )
    return NoteContext(
        method=record.spec.label,
        setting=record.setting,
        seed=record.spec.seed,
        run_id=record.run_id,
        status=record.status,
        edition=report.edition,
        verdict=run.verdict,
        control=control_text(control_rows([run], sources.values)),
        headline=headline,
        findings=finding_rows([run], record.spec.label, record.setting, card_metrics),
        claims=tuple(claim for claim in reported if claim.kind != "note"),  # the form contains these claims
        integrity=record.integrity,
        replays=replays_text([record.integrity]),
        series_label=series_label([record.integrity]),
        form=form,
        audit=audit,
    )
