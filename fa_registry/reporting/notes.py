"""The notes an audit leaves in MLflow: of every run, of the audit's own run, of the study's. Short, with links to the pages."""

from __future__ import annotations

import dataclasses
from collections import Counter

from fa_registry.records import AuditReport, Exclusion, RunAudit
from fa_registry.reporting.build_form import note_context
from fa_registry.reporting.contexts import AuditNoteContext, ExcludedNoteContext, variables
from fa_registry.reporting.environment import Pages
from fa_registry.reporting.parts import Listed
from fa_registry.reporting.rows import Count
from fa_registry.reporting.sources import Sources

MAX_NOTE = 4000  # characters; MLflow takes 8000, but nobody reads them beside a run
MOST_FORMS = 25  # linked in the note of an audit
WORST_FIRST = ("fail", "incomplete", "warn", "pass")
KINDS = {
    "integrity": "integrity failure",
    "ended early": "ended early",
    "not trained": "not trained",
    "broken": "broken",
}
CUT = "\n\n… the rest stands in the form."


class Notes:
    """Writes the notes of one report; made once, for looking through all runs for every note would be quadratic."""

    def __init__(self, report: AuditReport):
        self.sources = Sources.of(report)
        self._alone = {group.runs[0].record.run_id for group in self.sources.groups if len(group.runs) == 1}
        self.forms = {run.record.run_id: link for group, link in self.sources.forms for run in group.runs}
        self._pages = Pages()

    def of_run(self, run: RunAudit, form: str = "", audit: str = "") -> str:
        """The short form of one run in Markdown. form, audit: addresses of these pages where the note will stand."""
        alone = run.record.run_id in self._alone
        context = note_context(run, self.sources.report, self.sources.frozen, form, audit, alone)
        return bounded(self._pages.render("note.md.j2", variables(context)))

    def of_audit(self, base: str = "", table: str = "") -> str:
        """What the audit found as a whole. base: address of the folder of its pages; table: of the table of all runs."""
        return bounded(self._pages.render("audit_note.md.j2", variables(audit_note_context(self.sources, base, table))))

    def of_excluded(self, one: Exclusion, audit: str = "") -> str:
        """Why a run was not judged, in the place where an older audit may have left its verdict."""
        context = excluded_note_context(one, self.sources.report, audit)
        return bounded(self._pages.render("excluded_note.md.j2", variables(context)))

    def margin(self, run: RunAudit) -> float | None:
        """Accuracy − frozen accuracy in percentage points; None where there is none."""
        return self.sources.frozen.margin(run).reading.value


def audit_note_context(sources: Sources, base: str = "", table: str = "") -> AuditNoteContext:
    """What an audit found as a whole; base, table as of_audit takes them."""
    report = sources.report
    links = sorted((link for _, link in sources.forms), key=lambda link: WORST_FIRST.index(link.verdict.outcome))
    counts = Counter(link.verdict.outcome for link in links)
    return AuditNoteContext(
        edition=report.edition,
        selection=report.selection,
        counts=tuple(Count(outcome, counts[outcome]) for outcome in WORST_FIRST if outcome in counts),
        run_count=len(report.runs),
        excluded=len(report.excluded),
        audit=base and f"{base}index.html",
        table=table,
        forms=Listed.first(MOST_FORMS, [dataclasses.replace(link, href=base and base + link.href) for link in links]),
    )


def not_judged(one: Exclusion) -> str:
    """What stands in the place of a verdict: `NOT JUDGED (integrity failure)`; a report of an older release holds no kind."""
    return f"NOT JUDGED ({KINDS[one.kind]})" if one.kind in KINDS else "NOT JUDGED"


def excluded_note_context(one: Exclusion, report: AuditReport, audit: str = "") -> ExcludedNoteContext:
    """audit: address of the whole audit's page."""
    return ExcludedNoteContext(not_judged(one), one.reason, one.run_id, report.edition, audit)


def bounded(note: str) -> str:
    """`note`, cut at the end of a line where it is longer than MAX_NOTE, and then saying so."""
    if len(note) <= MAX_NOTE:
        return note
    return note[: MAX_NOTE - len(CUT)].rpartition("\n")[0].rstrip() + CUT
