"""The template variables of index.html.j2: the whole audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from fa_registry.metrics import Metric
from fa_registry.protocol.grouping import Group, describe_difference
from fa_registry.protocol.replay_summary import nonce_text
from fa_registry.records import AuditReport, EditionReference, Exclusion, OtherRun, Waiver
from fa_registry.reporting.audit_rows import audit_row
from fa_registry.reporting.figure_models import FigureFile, SettingFigures
from fa_registry.reporting.figures.canvas import RenderedFigure
from fa_registry.reporting.files import report_files
from fa_registry.reporting.labels import command, file_name, group_label, means_in_text
from fa_registry.reporting.pages.analyses import PageAnalyses
from fa_registry.reporting.pages.form import completion_commands
from fa_registry.reporting.pages.form_tables import entry
from fa_registry.reporting.pages.published_values import ReproductionTable, reproduction_table
from fa_registry.reporting.report_index import (
    EvidenceRow,
    Sources,
    changed_editions,
    evidence,
    integrity_states,
    not_intact,
)
from fa_registry.reporting.report_values import Columns, finding_rows, most_severe_first
from fa_registry.reporting.view_models import (
    AuditRow,
    ChangedEdition,
    Count,
    EditionComparison,
    Entry,
    Estimate,
    FindingRow,
    Footnote,
    IntegrityRow,
    Link,
    NearSettingRow,
    SettingTable,
    Truncated,
    WaiverRow,
)

INTEGRITY_ORDER = ("mismatch", "unverifiable", "trusted", "verified")
MOST = 200  # entries of a list that grows with the runs; the page counts the other entries, and audit.json contains all
MOST_NAMES = 40  # methods of one verdict in a tile
FIGURES = "figures"  # name of the folder with the figures
NO_FIGURES: Truncated[SettingFigures] = Truncated((), 0)
NO_ANALYSES = PageAnalyses()


def index_context(
    sources: Sources, figures: Truncated[SettingFigures] = NO_FIGURES, analyses: PageAnalyses = NO_ANALYSES
) -> IndexContext:
    """Return the template variables of the page that shows the whole audit."""
    report = sources.report
    columns = sources.columns
    not_passed, passed_count = _findings(sources)
    integrity = sorted(integrity_states(report.runs, report.excluded), key=lambda row: INTEGRITY_ORDER.index(row.state))
    states = [row.state for row in integrity]
    links = [link for _, link in sources.forms]
    runs = [run for group in sources.groups for run in group.runs]
    return IndexContext(
        title=report.title,
        selection=report.selection,
        edition=report.edition,
        overrides=tuple(_overrides(sources.editions)),
        changed_editions=tuple(changed_editions(sources.editions)),
        headline=headline(sources.groups),
        counts=tuple(_verdict_counts(short_names(links))),
        waivers=waiver_rows(report, sources.groups),
        run_count=len(report.runs),
        nonce=nonce_text(report.replay),
        columns=columns,
        spread=" and ".join(column.symbol for column in columns if column.with_deviation),
        settings=tuple(
            setting_table(number, part, columns, sources) for number, part in enumerate(settings_of(sources), 1)
        ),
        means=means_in_text(columns),
        details=len(report.runs) <= MOST,
        figures=figures,
        analyses=analyses,
        findings=Truncated.first(MOST, not_passed),
        passed=passed_count,
        comparison=_comparison(sources),
        reproduction=reproduction_table(report.reproduction),
        excluded=Truncated.first(MOST, report.excluded),
        unaudited=_unaudited(report),
        left_out=Truncated.first(MOST_NAMES, report.left_out),
        beside=_neighbour(sources),
        integrity=Truncated.first(MOST, integrity),
        evidence=evidence(report.runs, report.excluded),
        not_intact=Truncated.first(MOST_NAMES, not_intact(report.excluded)),
        integrity_counts=tuple(Count(state, states.count(state)) for state in INTEGRITY_ORDER if state in states),
        remarks=report.remarks,
        completing=completion_commands(
            [run for run in report.runs if run.record.spec.control == "none"], report.excluded, report
        ),
        commands=Truncated(tuple(command(run.record.spec) for run in runs[:MOST]), len(runs)),
        forms=tuple(links),
        figure_files=tuple(figure_files(figures, analyses)),
        files=tuple((file.name, file.description) for file in report_files()),
    )


def figure_files(figures: Truncated[SettingFigures], analyses: PageAnalyses) -> dict[FigureFile, RenderedFigure]:
    """Return a mapping from file to image for every figure of the page.

    The name of a file is made from the title of its figure and, if there are several settings, from the setting.
    """
    several = len(figures.shown) > 1
    drawn = [(figure, part.setting) for part in figures.shown for figure in (*part.figures, *part.heat_maps)]
    drawn += [(analysis.figure, "") for analysis in analyses.shown]
    images_by_file: dict[FigureFile, RenderedFigure] = {}
    name_counts: Counter[str] = Counter()
    for figure, setting in drawn:
        name = file_name(f"{figure.title} {setting if several else ''}")
        name_counts[name] += 1
        suffix = f"-{name_counts[name]}" if name_counts[name] > 1 else ""  # for settings with the same label
        images_by_file[FigureFile(figure.title, setting, f"{FIGURES}/{name}{suffix}")] = figure.drawn
    return images_by_file


def _findings(sources: Sources) -> tuple[list[FindingRow], int]:
    not_passed, passed_count = [], 0
    for group in sources.groups:
        for row in finding_rows(group.runs, group_label(group), group.setting, sources.known):
            if row.outcome == "pass":
                passed_count += len(row.seeds)
            else:
                not_passed.append(row)
    return most_severe_first(not_passed), passed_count


def _unaudited(report: AuditReport) -> Truncated[OtherRun] | None:
    """Return the runs that this audit left out; finished runs are first.

    The result is None if the report does not list these runs.
    """
    other_runs = report.choice.unaudited if report.choice else None
    return None if other_runs is None else Truncated.first(MOST, sorted(other_runs, key=lambda run: not run.finished))


def _neighbour(sources: Sources) -> Truncated[NearSettingRow] | None:
    """Return the runs whose setting differs by at most 1 % from a judged setting.

    The result is None if the report does not list these runs.
    """
    choice = sources.report.choice
    if choice is None:
        return None
    rows = [
        NearSettingRow(other, judged.label, describe_difference(differing))
        for other in choice.beside
        for judged, differing in sources.near_settings.near(other.spec)
    ]
    return Truncated.first(MOST, rows)


def _overrides(editions: Sequence[EditionReference]) -> Iterator[Entry]:
    for index, edition in enumerate(editions):
        prefix = f"{edition.name} " if index else ""
        for name, value in sorted(edition.overrides.items()):
            yield entry(f"{prefix}{name}", str(value))


def _comparison(sources: Sources) -> EditionComparison | None:
    """Return the verdicts of all editions on every method, or None if only one edition judged the runs."""
    if len(sources.editions) < 2:
        return None
    rows = [sources.compared(group, link.href) for group, link in sources.forms]
    return EditionComparison(sources.editions, Truncated.first(MOST, sorted(rows, key=lambda row: not row.why)))


def settings_of(sources: Sources) -> Iterator[tuple[tuple[Group, Link | None], ...]]:
    """Yield the groups of each setting with the links to their forms, in the order of the pages."""
    linked = zip(sources.groups, sources.links, strict=True)  # the groups are ordered by setting
    for _, part in groupby(linked, key=lambda pair: pair[0].runs[0].record.spec.setting.identity):
        yield tuple(part)


def setting_table(
    number: int, part: Iterable[tuple[Group, Link | None]], columns: Columns, sources: Sources
) -> SettingTable:
    """Return the part of the audit table for one setting, with these columns.

    Each part has its own footnotes, because a paper may include the table of one setting only. If the report has too many runs, the
    page does not show the numbers of each seed, and they are removed from the rows.
    """
    rows = [audit_row(group, sources, columns, link.href if link else "") for group, link in part]
    reasons: dict[str, dict[str, None]] = {}
    rows = [replace(row, estimates=_marked(row, columns, reasons)) for row in rows]
    if len(sources.report.runs) > MOST:
        rows = [replace(row, seeds=tuple(replace(seed, numbers={}) for seed in row.seeds)) for row in rows]
    notes = (
        Footnote(mark, reason, Truncated.first(MOST_NAMES, tuple(ids)))
        for mark, (reason, ids) in enumerate(reasons.items(), 1)
    )
    return SettingTable(number, rows[0].setting, tuple(rows), tuple(notes))


def _marked(row: AuditRow, columns: Columns, reasons: dict[str, dict[str, None]]) -> Mapping[str, Estimate]:
    """Return the means of a row with their footnotes.

    There is one footnote per reason why a number is missing, with all its runs.
    """
    marked = dict(row.estimates)
    for name in (column.name for column in columns if not (row.control and column.compared_with_control)):
        missing = [(seed.run_id, seed.numbers[name].reading.reason) for seed in row.seeds]
        missing = [(run_id, reason) for run_id, reason in missing if reason]
        mean = row.estimates[name].mean
        if mean.reading.reason and not missing:  # every seed has a number, but there is no mean
            missing = [(run_id, mean.reading.reason) for run_id in mean.run_ids]
        for run_id, reason in missing:
            reasons.setdefault(reason, {})[run_id] = None
        marks = dict.fromkeys(list(reasons).index(reason) + 1 for _, reason in missing)
        marked[name] = replace(row.estimates[name], marks=tuple(marks))
    return marked


def _verdict_counts(links: Sequence[Link]) -> Iterator[Count]:
    for outcome in WORST_FIRST:
        alike = tuple(link for link in links if link.verdict.outcome == outcome)
        if alike:
            yield Count(outcome, len(alike), alike[:MOST_NAMES])


def headline(groups: Iterable[Group]) -> IndexHeadline:
    """Return a summary of the verdicts, with the gating rules that fire; the most frequent rule is first."""
    judged = [group for group in groups if not group.control]
    outcomes = [group.verdict.outcome for group in judged]
    counts = [(outcome, outcomes.count(outcome)) for outcome in WORST_FIRST if outcome in outcomes]
    settings = {group.runs[0].record.spec.setting.identity for group in judged}
    return IndexHeadline(_sentence(counts, len(judged), len(settings)), tuple(_rules(judged)), len(settings))


def _rules(groups: Iterable[Group]) -> Iterator[tuple[str, str, int]]:
    counts: Counter[tuple[str, str]] = Counter()
    for group in groups:
        findings = (finding for run in group.runs for finding in run.findings)
        counts.update({(one.rule, one.title) for one in findings if one.gating and one.outcome == "fail"})
    for (rule, title), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield rule, title, count


def _sentence(counts: Sequence[tuple[str, int]], total: int, settings: int) -> str:
    """Return the summary sentence, such as `8 of 23 methods fail, 10 pass.`"""
    if not total:
        return "No method was judged."
    noun = "method" if settings == 1 else "method × setting pair"
    if len(counts) == 1:
        subject = f"The only {noun}" if total == 1 else f"All {total} {noun}s"
        return f"{subject} {COMMANDS[counts[0][0]][total > 1]}."
    first, *other_clauses = [f"{count} {COMMANDS[outcome][count > 1]}" for outcome, count in counts]
    count, predicate = first.split(" ", 1)
    return f"{', '.join([f'{count} of {total} {noun}s {predicate}', *other_clauses])}."


COMMANDS = {
    "fail": ("fails", "fail"),
    "incomplete": ("is incomplete", "are incomplete"),
    "warn": ("draws a warning", "draw a warning"),
    "pass": ("passes", "pass"),
}


@dataclass(frozen=True)
class IndexHeadline:
    """A summary of the audit in one sentence.

    Attributes:
        rules: For each rule that fires, the tuple (code, title, number of methods); the most frequent rule is first.
    """

    sentence: str
    rules: tuple[tuple[str, str, int], ...]
    settings: int


WORST_FIRST = ("fail", "incomplete", "warn", "pass")


@dataclass(frozen=True)
class IndexContext:
    """index.html.j2: the whole audit."""

    title: str
    """the audit's title"""
    selection: str
    """how the runs were chosen"""
    edition: EditionReference
    """the edition (set of rules) that judged the runs, by name and digest"""
    overrides: tuple[Entry, ...]
    """changed thresholds. A threshold of a further edition is preceded by the name of this edition. An edition with
    changes is 'modified'"""
    changed_editions: tuple[ChangedEdition, ...]
    """modified or user-supplied editions, each with its differences from the built-in edition on which it is based"""
    headline: IndexHeadline
    """the verdicts in one sentence, and the rules that fire"""
    counts: tuple[Count, ...]
    """number of groups (one method in one setting) by verdict, worst verdict first, with short links to the forms"""
    waivers: tuple[WaiverRow, ...]
    """waivers with author, finding, reason and expiry date; expired waivers are included"""
    run_count: int
    """number of runs that were judged, controls included"""
    nonce: str
    """sentence on a typed nonce and on earlier audits of the runs; empty if this audit drew a nonce and is the first one"""
    columns: tuple[Metric, ...]
    """the numeric columns of the audit table; a column is omitted if no run measured its metric"""
    spread: str
    """the columns whose mean is shown with the standard deviation over seeds"""
    settings: tuple[SettingTable, ...]
    """the audit table, one part per setting, with the reasons why numbers are missing"""
    means: str
    """the kind of mean over seeds (arithmetic or geometric) of each column"""
    details: bool
    """whether every seed's numbers are shown below the table; otherwise they are in the forms"""
    figures: Truncated[SettingFigures]
    """the trajectories and the figures by site of the first settings, with their numbers"""
    analyses: PageAnalyses
    """the analyses of all runs together, and the reason for each analysis that is left out"""
    findings: Truncated[FindingRow]
    """every finding that did not pass, most severe first; seeds with the same judgement are grouped"""
    passed: int
    """number of findings that passed"""
    comparison: EditionComparison | None
    """every edition's verdict on every method; none if only one edition judged the runs"""
    reproduction: ReproductionTable | None
    """every published value of the study with its outcome; none if the study has no reference.toml"""
    excluded: Truncated[Exclusion]
    """selected runs that cannot be judged, with the reason, and the traceback if the judging failed"""
    unaudited: Truncated[OtherRun] | None
    """runs in the store that have a judged method and setting, but are not in this audit; none if the store was not searched"""
    left_out: Truncated[OtherRun]
    """complete runs of the judged methods and settings without which this audit replaces no verdict and allows no claim"""
    beside: Truncated[NearSettingRow] | None
    """runs whose specification differs from a judged run only in numbers, by at most 1 %; none if the report lacks this list"""
    integrity: Truncated[IntegrityRow]
    """whether the logged metrics of each run are confirmed, worst first"""
    evidence: tuple[EvidenceRow, ...]
    """comparisons with the recorded digests, one line per subject: how many runs agree, differ or could not be compared"""
    not_intact: Truncated[Exclusion]
    """selected runs that are not judged because they differ from their recorded digests"""
    integrity_counts: tuple[Count, ...]
    """number of runs in each integrity state"""
    remarks: tuple[str, ...]
    """the remarks of the audit"""
    completing: tuple[str, ...]
    """the command lines that train the missing runs and repeat the audit; none if no run is missing (shell)"""
    commands: Truncated[str]
    """the command lines that retrain the judged runs (shell)"""
    forms: tuple[Link, ...]
    """links to the reporting forms; the paths are relative to this page"""
    figure_files: tuple[FigureFile, ...]
    """the files of the figures (.svg and .pdf); the paths are relative to this page"""
    files: tuple[tuple[str, str], ...]
    """the name of each machine-readable file, and a description of its content"""


def short_names(links: Sequence[Link]) -> list[Link]:
    """Return the links; the text is the label without options if the method has only one variant."""
    variants: dict[str, set[str]] = {}
    for link in links:
        variants.setdefault(link.name, set()).add(link.text)
    return [link if len(variants[link.name]) > 1 else replace(link, text=link.name) for link in links]


def waiver_rows(report: AuditReport, groups: Sequence[Group]) -> tuple[WaiverRow, ...]:
    """Return every waiver with the findings that it waived; expired waivers are last and waive none."""
    ordered = sorted(report.waivers, key=lambda waiver: waiver.expired)
    return tuple(WaiverRow(waiver, _scope(waiver), tuple(_waived_by(waiver, groups))) for waiver in ordered)


def _scope(waiver: Waiver) -> str:
    parts = [f"run {waiver.run}" if waiver.run else "", f"method {waiver.method}" if waiver.method else ""]
    return ", ".join(filter(None, parts)) or "every run"


def _waived_by(waiver: Waiver, groups: Sequence[Group]) -> Iterator[str]:
    for group in groups if not waiver.expired else ():
        for run in group.runs:
            is_named = run.record.run_id.startswith(waiver.run)
            is_meant = is_named and waiver.method in ("", run.record.spec.method_label)
            if is_meant and any(one.outcome == "waived" and one.rule == waiver.rule for one in run.findings):
                yield f"{group_label(group)}, seed {run.record.spec.seed}"
