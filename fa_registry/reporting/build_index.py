"""From an audit report to what index.html.j2 shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fa_registry.protocol.grouping import Group, groups
from fa_registry.records import AuditReport, Finding, RunAudit
from fa_registry.reporting.contexts import IndexContext
from fa_registry.reporting.identification import one
from fa_registry.reporting.naming import command, group_label, slug
from fa_registry.reporting.parts import (
    AuditRow,
    Count,
    Entry,
    Estimate,
    FindingRow,
    Footnote,
    Link,
    Number,
    SettingRows,
)
from fa_registry.reporting.pictures import setting_figures
from fa_registry.reporting.readings import Frozen, integrity_row, over_seeds, seed_row

WORST_FIRST = ("fail", "incomplete", "warn", "pass")
FINDING_ORDER = ("error", "fail", "not_applicable", "skipped", "waived", "pass")
INTEGRITY_ORDER = ("mismatch", "unverifiable", "trusted", "verified")
COLUMNS = ("accuracy", "h_norm", "g_norm", "growth", "frozen", "margin", "gamma")


def index_context(report: AuditReport) -> IndexContext:
    """The whole audit, ready to print."""
    ordered = groups(report)
    forms = tuple(form_link(group) for group in ordered if not group.control)
    settings, footnotes = number_footnotes(_settings(ordered, report))
    findings = [row for group in ordered for row in finding_rows(group)]
    shown = [row for row in findings if row.outcome != "pass"]
    states = [run.record.integrity.state for run in report.runs]
    return IndexContext(
        title=report.title,
        selection=report.selection,
        edition=report.edition,
        overrides=overrides(report),
        counts=tuple(_verdict_counts(forms)),
        run_count=len(report.runs),
        settings=settings,
        footnotes=footnotes,
        figures=setting_figures(ordered),
        findings=tuple(sorted(shown, key=lambda row: FINDING_ORDER.index(row.outcome))),
        passed=len(findings) - len(shown),
        excluded=report.excluded,
        integrity=tuple(integrity_row(run.record) for run in _by_integrity(report.runs)),
        integrity_counts=tuple(Count(state, states.count(state)) for state in INTEGRITY_ORDER if state in states),
        remarks=report.remarks,
        commands=tuple(command(run.record.spec) for group in ordered for run in group.runs),
        forms=forms,
    )


def form_link(group: Group) -> Link:
    name = slug(group)
    return Link(group_label(group), group.setting, group.verdict, f"forms/{name}.html", f"forms/{name}.md")


def overrides(report: AuditReport) -> tuple[Entry, ...]:
    return tuple(one(name, str(value)) for name, value in sorted(report.edition.overrides.items()))


def finding_rows(group: Group) -> Iterator[FindingRow]:
    """Every finding of a group's runs; what a control skips because it *is* the control is no news."""
    for run in group.runs:
        for finding in run.findings:
            if not (group.control and finding.outcome == "skipped"):
                yield finding_row(finding, run, group_label(group), group.setting)


def finding_row(finding: Finding, run: RunAudit, method: str, setting: str) -> FindingRow:
    """One finding in words, under the name of its group."""
    kind = "pct" if finding.quantity == "accuracy" else "num"
    return FindingRow(
        rule=finding.rule,
        title=finding.title,
        outcome=finding.outcome,
        required=finding.required,
        observed=Number(finding.observed, kind, (finding.run_id,)),
        sentence=finding.sentence,
        method=method,
        setting=setting,
        seed=run.record.spec.seed,
        run_name=run.record.name,
        site="" if finding.site is None else f"site {finding.site}",
        epoch="" if finding.first_fire is None else f"first fires at epoch {finding.first_fire}",
        reference_run_id=finding.reference_run_id,
    )


def number_footnotes(settings: Iterable[SettingRows]) -> tuple[tuple[SettingRows, ...], tuple[Footnote, ...]]:
    """Give every missing number of the audit table its footnote: one a reason, with all the runs it holds for."""
    reasons: dict[str, list[str]] = {}
    numbered = []
    for part in settings:
        rows = tuple(replace(row, **_marked(row, reasons)) for row in part.rows)
        numbered.append(replace(part, rows=rows))
    notes = (
        Footnote(mark, reason, tuple(dict.fromkeys(ids))) for mark, (reason, ids) in enumerate(reasons.items(), start=1)
    )
    return tuple(numbered), tuple(notes)


def _marked(row: AuditRow, reasons: dict[str, list[str]]) -> Mapping[str, Estimate]:
    """The row's columns with their footnotes; adds to `reasons` what is new."""
    marked = {}
    for column in COLUMNS:
        if row.control and column in ("frozen", "margin"):
            continue  # a control is not compared with itself: the table shows a dash
        missing = [(seed.run_id, getattr(seed, column).reading.reason) for seed in row.seeds]
        missing = [(run_id, reason) for run_id, reason in missing if reason]
        for run_id, reason in missing:
            reasons.setdefault(reason, []).append(run_id)
        marks = dict.fromkeys(list(reasons).index(reason) + 1 for _, reason in missing)
        marked[column] = replace(getattr(row, column), marks=tuple(marks))
    return marked


def _settings(ordered: Sequence[Group], report: AuditReport) -> Iterator[SettingRows]:
    frozen = Frozen.of(report)
    parts: dict[str, list[Group]] = {}
    for group in ordered:
        parts.setdefault(group.runs[0].record.spec.setting.identity, []).append(group)
    for members in parts.values():
        yield SettingRows(members[0].setting, tuple(_audit_row(group, frozen) for group in members))


def _audit_row(group: Group, frozen: Frozen) -> AuditRow:
    seeds = tuple(seed_row(run, frozen) for run in group.runs)
    columns = {name: over_seeds(seeds, lambda row, name=name: getattr(row, name)) for name in COLUMNS}
    href = "" if group.control else form_link(group).href
    return AuditRow(group_label(group), group.control, group.verdict, seeds, href=href, **columns)


def _verdict_counts(forms: Sequence[Link]) -> Iterator[Count]:
    for outcome in WORST_FIRST:
        links = tuple(link for link in forms if link.verdict.outcome == outcome)
        if links:
            yield Count(outcome, len(links), links)


def _by_integrity(runs: Iterable[RunAudit]) -> list[RunAudit]:
    return sorted(runs, key=lambda run: INTEGRITY_ORDER.index(run.record.integrity.state))
