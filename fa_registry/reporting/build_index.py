"""From an audit report to what index.html.j2 shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fa_registry.protocol.grouping import Group
from fa_registry.quantities import means_in_words
from fa_registry.records import AuditReport, EditionReference, OtherRun
from fa_registry.reporting import reproduction
from fa_registry.reporting.contexts import IndexContext
from fa_registry.reporting.editions import changed_editions
from fa_registry.reporting.evidence import evidence, integrity_states, not_intact
from fa_registry.reporting.findings import finding_rows, most_severe_first
from fa_registry.reporting.headline import WORST_FIRST, headline, judged_columns, short_names
from fa_registry.reporting.identification import one
from fa_registry.reporting.naming import command, group_label
from fa_registry.reporting.page_analyses import page_analyses
from fa_registry.reporting.parts import Entry, Estimate, Listed, SettingFigures
from fa_registry.reporting.pictures import room_beside, setting_figures
from fa_registry.reporting.readings import COLUMNS, column_estimate, seed_row
from fa_registry.reporting.rows import AuditRow, Comparison, Count, Footnote, Link, SettingRows
from fa_registry.reporting.sources import Sources
from fa_registry.reporting.waivers import waiver_rows

INTEGRITY_ORDER = ("mismatch", "unverifiable", "trusted", "verified")
MOST = 200  # of the entries of a list that grows with the runs; the rest is counted on the page and in audit.json
MOST_NAMES = 40  # in a tile, of methods of one verdict
NO_FIGURES: Listed[SettingFigures] = Listed((), 0)


def figures_beside(page: str, sources: Sources) -> Listed[SettingFigures]:
    """The figures for which a page has room that is so long without them."""
    return setting_figures(
        sources.groups, sources.report.cards, room_beside(len(page.encode(errors="backslashreplace")))
    )


def index_context(sources: Sources, figures: Listed[SettingFigures] = NO_FIGURES) -> IndexContext:
    """The whole audit, ready to print. figures: see figures_beside; until the rest is written nobody knows their room."""
    report = sources.report
    settings, footnotes = number_footnotes(setting_rows(sources))
    findings = [
        row
        for group in sources.groups
        for row in finding_rows(group.runs, group_label(group), group.setting, sources.known)
    ]
    to_look_at = most_severe_first(row for row in findings if row.outcome != "pass")
    integrity = sorted(integrity_states(report.runs, report.excluded), key=lambda row: INTEGRITY_ORDER.index(row.state))
    states = [row.state for row in integrity]
    links = [link for _, link in sources.forms]
    return IndexContext(
        title=report.title,
        selection=report.selection,
        edition=report.edition,
        overrides=tuple(_overrides(sources.opinions.editions)),
        changed_editions=tuple(changed_editions(sources.opinions.editions)),
        headline=headline(sources.groups),
        counts=tuple(_verdict_counts(short_names(links))),
        waivers=waiver_rows(report, sources.groups),
        run_count=len(report.runs),
        settings=settings,
        means=means_in_words(COLUMNS.values()),
        shows_stability=any("stability_mid" in run.record.measurements.scalars for run in report.runs),
        details=len(report.runs) <= MOST,
        footnotes=footnotes,
        figures=figures,
        analyses=page_analyses(report),
        findings=Listed.first(MOST, to_look_at),
        passed=sum(len(row.seeds) for row in findings if row.outcome == "pass"),
        comparison=_comparison(sources),
        reproduction=reproduction.table(report.reproduction),
        excluded=Listed.first(MOST, report.excluded),
        unaudited=_unaudited(report),
        integrity=Listed.first(MOST, integrity),
        evidence=evidence(report.runs, report.excluded),
        not_intact=Listed.first(MOST_NAMES, not_intact(report.excluded)),
        integrity_counts=tuple(Count(state, states.count(state)) for state in INTEGRITY_ORDER if state in states),
        remarks=report.remarks,
        commands=_commands(sources.groups),
        forms=tuple(links),
    )


def _unaudited(report: AuditReport) -> Listed[OtherRun] | None:
    """Finished runs first: they could have been judged."""
    found = report.choice.unaudited if report.choice else None
    return None if found is None else Listed.first(MOST, sorted(found, key=lambda run: not run.finished))


def _overrides(editions: Sequence[EditionReference]) -> Iterator[Entry]:
    """Changed thresholds; those of another edition than the leading one under its name."""
    for place, edition in enumerate(editions):
        before = f"{edition.name} " if place else ""
        for name, value in sorted(edition.overrides.items()):
            yield one(f"{before}{name}", str(value))


def _commands(groups: Iterable[Group]) -> Listed[str]:
    runs = [run for group in groups for run in group.runs]
    return Listed(tuple(command(run.record.spec) for run in runs[:MOST]), len(runs))


def _comparison(sources: Sources) -> Comparison | None:
    """Where several editions judged: what each says of every method, those they differ on first."""
    if len(sources.opinions.editions) < 2:
        return None
    rows = [sources.opinions.compared(group, link.href) for group, link in sources.forms]
    return Comparison(sources.opinions.editions, Listed.first(MOST, sorted(rows, key=lambda row: not row.why)))


def number_footnotes(settings: Iterable[SettingRows]) -> tuple[tuple[SettingRows, ...], tuple[Footnote, ...]]:
    """Give every missing number of the audit table its footnote: one a reason, with all the runs it holds for."""
    reasons: dict[str, dict[str, None]] = {}
    marks: dict[str, int] = {}
    numbered = []
    for part in settings:
        rows = tuple(replace(row, **_marked(row, reasons, marks)) for row in part.rows)
        numbered.append(replace(part, rows=rows))
    notes = (Footnote(marks[reason], reason, Listed.first(MOST_NAMES, tuple(ids))) for reason, ids in reasons.items())
    return tuple(numbered), tuple(notes)


def _marked(row: AuditRow, reasons: dict[str, dict[str, None]], marks: dict[str, int]) -> Mapping[str, Estimate]:
    """The row's columns with their footnotes; adds to `reasons` (reason → its runs) and `marks` what is new."""
    marked = {}
    for column in COLUMNS:
        if row.control and column in ("frozen", "margin"):
            continue  # a control is not compared with itself: the table shows a dash
        missing = [(seed.run_id, getattr(seed, column).reading.reason) for seed in row.seeds]
        missing = [(run_id, reason) for run_id, reason in missing if reason]
        mean = getattr(row, column).mean
        if mean.reading.reason and not missing:  # every seed has a number, and they have no mean
            missing = [(run_id, mean.reading.reason) for run_id in mean.run_ids]
        for run_id, reason in missing:
            marks.setdefault(reason, len(marks) + 1)
            reasons.setdefault(reason, {})[run_id] = None
        found = dict.fromkeys(marks[reason] for _, reason in missing)
        marked[column] = replace(getattr(row, column), marks=tuple(found))
    return marked


def setting_rows(sources: Sources) -> Iterator[SettingRows]:
    """The audit table, one part a setting, its missing numbers without footnotes yet."""
    parts: dict[str, list[AuditRow]] = {}
    names: dict[str, str] = {}
    for group, link in zip(sources.groups, sources.links, strict=True):
        identity = group.runs[0].record.spec.setting.identity
        names.setdefault(identity, group.setting)
        parts.setdefault(identity, []).append(_audit_row(group, link, sources))
    for identity, rows in parts.items():
        yield SettingRows(names[identity], tuple(rows))


def _audit_row(group: Group, link: Link | None, sources: Sources) -> AuditRow:
    seeds = tuple(seed_row(run, sources.frozen) for run in group.runs)
    columns = {name: column_estimate(seeds, name) for name in COLUMNS}
    href, judged = link.href if link else "", judged_columns(group)
    return AuditRow(group_label(group), group.control, group.verdict, seeds, href=href, judged=judged, **columns)


def _verdict_counts(links: Sequence[Link]) -> Iterator[Count]:
    for outcome in WORST_FIRST:
        alike = tuple(link for link in links if link.verdict.outcome == outcome)
        if alike:
            yield Count(outcome, len(alike), alike[:MOST_NAMES])
