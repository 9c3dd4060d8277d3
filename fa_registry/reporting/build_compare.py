"""From judged runs to a comparison: the columns of each setting side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fa_registry.protocol.grouping import Group, groups
from fa_registry.quantities import Known, further, held, means_in_words
from fa_registry.records import AuditReport, RunAudit, RunSpec
from fa_registry.reporting.build_form import aggregates
from fa_registry.reporting.compare_fields import differing_fields, of_setting
from fa_registry.reporting.compare_parts import (
    CompareContext,
    ComparedQuantity,
    ComparedRule,
    Contender,
    PairedRow,
    SideBySide,
    SideFigures,
)
from fa_registry.reporting.compare_sites import compared_sites, layer_figure
from fa_registry.reporting.diagnostics_tables import first_fires
from fa_registry.reporting.findings import finding_rows
from fa_registry.reporting.identification import one
from fa_registry.reporting.naming import command, group_label
from fa_registry.reporting.paired import paired_rows, seeds_of
from fa_registry.reporting.parts import Listed
from fa_registry.reporting.pictures import setting_figures
from fa_registry.reporting.readings import COLUMNS, Frozen, column_estimate, scalar_estimate, seed_row
from fa_registry.reporting.rows import Count

MOST = 200
ROOM = 550_000  # bytes of the page for figures and their numbers, shared by its parts
QUANTITIES = (  # column of a seed's row, symbol, words
    ("accuracy", "accuracy", "whole test set"),
    ("frozen", "frozen", "accuracy of the frozen controls, paired by seed"),
    ("margin", "margin", "accuracy − frozen accuracy, paired by seed"),
    ("h_norm", "‖h_L‖₂", "median over samples at the last site"),
    ("g_norm", "‖g_L‖", "of the mean cross entropy at the last site"),
    ("growth", "growth", "largest of a block"),
    ("stability", "stability", "mean pairwise cosine of batch gradients at the middle site"),
    ("gamma", "Γ", "gamma_deep_mean"),
)
NOT_COMPARABLE = "These settings are not comparable, so that there is no paired difference: they differ in {fields}."


def compare_context(report: AuditReport, chosen: Sequence[Group]) -> CompareContext:
    """chosen: the columns in the order in which they were asked for, of this report's runs.

    Columns of a setting that all methods (or runs) share stand together; where there is none, all stand in one part.
    """
    parts, left_out = settings_shared(chosen)
    frozen = Frozen.of(report)
    followed = tuple((_side(part, frozen, report.cards), _figures(part, report, ROOM // len(parts))) for part in parts)
    states = [run.record.integrity.state for run in _runs(chosen)]
    return CompareContext(
        title=" against ".join(dict.fromkeys(map(group_label, chosen))),
        selection=report.selection,
        edition=report.edition,
        overrides=tuple(one(name, str(value)) for name, value in sorted(report.edition.overrides.items())),
        integrity=tuple(Count(state, states.count(state)) for state in dict.fromkeys(states)),
        means=means_in_words(COLUMNS.values()),
        parts=followed,
        excluded=Listed.first(MOST, report.excluded),
        remarks=(*left_out, *(remark for part in parts for remark in _unpaired(part)), *report.remarks),
        commands=Listed.first(MOST, [command(run.record.spec) for run in _runs(chosen)]),
    )


def settings_shared(chosen: Sequence[Group]) -> tuple[list[list[Group]], list[str]]:
    """The columns by setting, and what is left out; all columns in one part where no setting has all of them."""
    wanted = set(map(group_label, chosen))
    by_setting: dict[str, list[Group]] = {}
    for group in chosen:
        by_setting.setdefault(_setting(group).identity, []).append(group)
    whole = {name for name, members in by_setting.items() if set(map(group_label, members)) == wanted}
    if not whole:
        return [list(chosen)], []
    lacking = [members for name, members in by_setting.items() if name not in whole]
    left_out = [
        f"{', '.join(map(group_label, members))} also ran in {members[0].setting}, where the others did not: left out."
        for members in lacking
    ]
    return [members for name, members in by_setting.items() if name in whole], left_out


def _side(columns: Sequence[Group], frozen: Frozen, cards: Mapping[str, Mapping[str, Any]]) -> SideBySide:
    fields, known = differing_fields(columns), held(cards)
    settings = dict.fromkeys(column.setting for column in columns)
    comparable = len({_setting(column).identity for column in columns}) == 1
    apart = ", ".join(field.field for field in fields if of_setting(field))
    return SideBySide(
        setting=" / ".join(settings),
        comparable=comparable,
        why_not="" if comparable else NOT_COMPARABLE.format(fields=apart),
        columns=tuple(_contender(column) for column in columns),
        quantities=(*_quantities(columns, frozen), *_further(columns, known)),
        aggregates=tuple(_aggregates(columns)),
        rules=tuple(_rules(columns, known)),
        paired=tuple(_paired(columns)) if comparable else (),
        fields=fields,
        sites=compared_sites(columns, cards),
    )


def _contender(column: Group) -> Contender:
    seeds = tuple((run.record.spec.seed, run.record.run_id, run.verdict) for run in column.runs)
    return Contender(group_label(column), column.setting, column.verdict, seeds)


def _quantities(columns: Sequence[Group], frozen: Frozen) -> Iterator[ComparedQuantity]:
    rows = [[seed_row(run, frozen) for run in column.runs] for column in columns]
    for name, symbol, words in QUANTITIES:
        estimates = tuple(column_estimate(seeds, name) for seeds in rows)
        yield ComparedQuantity(name, symbol, words, estimates)


def _further(columns: Sequence[Group], known: Known) -> Iterator[ComparedQuantity]:
    """What a run has one number of and no table names: of a diagnostic that another package brings."""
    measured = (name for run in _runs(columns) for name in run.record.measurements.scalars)
    for quantity in further(measured, known):
        yield ComparedQuantity(
            quantity.name,
            quantity.symbol,
            quantity.words,
            tuple(scalar_estimate(column.runs, quantity) for column in columns),
        )


def _aggregates(columns: Sequence[Group]) -> Iterator[ComparedQuantity]:
    for several in zip(*(aggregates(column.runs) for column in columns), strict=True):
        first = several[0]
        yield ComparedQuantity(first.name, "Γ", first.words, tuple(metric.estimate for metric in several))


def _rules(columns: Sequence[Group], known: Known) -> Iterator[ComparedRule]:
    found = [finding_rows(column.runs, group_label(column), column.setting, known) for column in columns]
    fires = [{fire.rule: ", ".join(fire.epochs) for fire in first_fires(column.runs)} for column in columns]
    titles = {row.rule: row.title for rows in found for row in rows}
    for rule, title in titles.items():
        cells = tuple(tuple(row for row in rows if row.rule == rule) for rows in found)
        required = tuple(dict.fromkeys(row.required for cell in cells for row in cell))
        yield ComparedRule(rule, title, required, cells, tuple(fire.get(rule, "never") for fire in fires))


def _paired(columns: Sequence[Group]) -> Iterator[PairedRow]:
    """The first column minus each of the others."""
    for other in columns[1:]:
        if seeds_of(columns[0]) & seeds_of(other):
            yield from paired_rows(columns[0], other)


def _unpaired(columns: Sequence[Group]) -> Iterator[str]:
    for other in columns[1:]:
        if not seeds_of(columns[0]) & seeds_of(other):
            yield f"{group_label(columns[0])} and {group_label(other)} share no seed: there is no paired difference."


def _figures(columns: Sequence[Group], report: AuditReport, room: int) -> SideFigures:
    """Trajectories and the figure by site, with the frozen controls of the same settings behind them."""
    settings = list(dict.fromkeys(_setting(column).identity for column in columns))
    shown = [
        column
        for column in groups(report)
        if column.runs[0].record.spec.control == "frozen" and _setting(column).identity in settings
    ]
    own = {run.record.run_id for run in _runs(columns)}
    behind = [group for group in shown if group.runs[0].record.run_id not in own]
    ordered = sorted([*columns, *behind], key=lambda group: settings.index(_setting(group).identity))
    drawn = setting_figures(ordered, report.cards, room=room)
    pictures = tuple(picture for setting in drawn.shown for picture in setting.pictures)
    plates = tuple(plate for setting in drawn.shown for plate in setting.plates)
    return SideFigures(pictures, plates, layer_figure(columns, compared_sites(columns, report.cards)))


def _setting(group: Group) -> RunSpec:
    return group.runs[0].record.spec.setting


def _runs(columns: Iterable[Group]) -> list[RunAudit]:
    return [run for column in columns for run in column.runs]
