"""The comparison page: one table per setting, with one column per judged method or run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fa_registry import jsonio
from fa_registry.metrics import (
    AGGREGATES,
    GEOMETRIC,
    SPREAD,
    TABLES,
    Known,
    Metric,
    headlines_of,
    metric_named,
    other_metrics,
    run_metrics,
    table,
)
from fa_registry.protocol.answer_intervals import with_samples
from fa_registry.protocol.credit import exact_sites
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.replay_summary import series_label
from fa_registry.records import AuditReport, EditionReference, Exclusion, Reading, RunAudit, RunSpec
from fa_registry.records.runs import OF_CREDIT
from fa_registry.reporting.audit_rows import audit_row
from fa_registry.reporting.figure_models import PageFigure, SettingFigures
from fa_registry.reporting.figures import by_site
from fa_registry.reporting.figures.analyses import figure_of
from fa_registry.reporting.figures.page import setting_figures
from fa_registry.reporting.labels import command, group_label, means_in_text
from fa_registry.reporting.pages.form_tables import card, entry, first_fires, sites_of
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import Columns, Values, audit_columns, finding_rows, site_row
from fa_registry.reporting.text import filters
from fa_registry.reporting.view_models import (
    AuditRow,
    Count,
    Entry,
    Estimate,
    FindingRow,
    Number,
    Row,
    Truncated,
)
from fa_registry.statistics import PairedDifference, excludes, paired_difference

MOST = 200
NOT_COMPARABLE = "These settings are not comparable, so there is no paired difference. The settings differ in {fields}."


def compare_context(report: AuditReport, selected_groups: Sequence[Group]) -> CompareContext:
    """Return the comparison of the selected columns, in the given order.

    Every setting in which all methods (or runs) have a column is one part of the comparison. If there is no such setting, all
    columns are in one part.
    """
    parts, left_out = settings_shared(selected_groups)
    sources, runs = Sources.of(report), _runs(selected_groups)
    columns = audit_columns(runs, card_metrics=sources.known)
    compared = [compared_setting(part, columns, sources) for part in parts]
    states = [run.record.integrity.state for run in runs]
    return CompareContext(
        title=" against ".join(dict.fromkeys(map(group_label, selected_groups))),
        selection=report.selection,
        edition=report.edition,
        overrides=tuple(entry(name, str(value)) for name, value in sorted(report.edition.overrides.items())),
        series_label=series_label([run.record.integrity for run in runs]),
        integrity=tuple(Count(state, states.count(state)) for state in dict.fromkeys(states)),
        means=means_in_text(columns),
        parts=tuple((part, _figures(part, groups, sources)) for part, groups in zip(compared, parts, strict=True)),
        excluded=Truncated.first(MOST, report.excluded),
        remarks=(*left_out, *(remark for part in parts for remark in _unpaired(part)), *report.remarks),
        commands=Truncated.first(MOST, [command(run.record.spec) for run in runs]),
    )


def settings_shared(selected_groups: Sequence[Group]) -> tuple[list[list[Group]], list[str]]:
    """Return the columns of each setting in which all methods have a column.

    If there is no such setting, all columns are in one part. The second value contains remarks on omitted columns.
    """
    labels = set(map(group_label, selected_groups))
    by_setting: dict[str, list[Group]] = {}
    for group in selected_groups:
        by_setting.setdefault(_setting(group).identity, []).append(group)
    complete = {name for name, members in by_setting.items() if set(map(group_label, members)) == labels}
    if not complete:
        return [list(selected_groups)], []
    lacking = [members for name, members in by_setting.items() if name not in complete]
    left_out = [
        f"{', '.join(map(group_label, members))} also ran in {members[0].setting}. This setting is "
        "left out, because not all compared methods or runs ran in it."
        for members in lacking
    ]
    return [members for name, members in by_setting.items() if name in complete], left_out


def compared_setting(groups: Sequence[Group], columns: Columns, sources: Sources) -> SettingComparison:
    """Return one part of the comparison, with a column per group.

    The rows are metrics, rules, sites and differing fields.
    """
    fields = differing_fields(groups)
    comparable = len({_setting(group).identity for group in groups}) == 1
    listed_names = {*(column.name for column in columns), *AGGREGATES}
    measured = (name for run in _runs(groups) for name in run.record.measurements.scalars)
    metrics = (
        *columns,
        *(metric for metric in run_metrics(measured, sources.known) if metric.name not in listed_names),
    )
    aggregates = tuple(map(metric_named, (*AGGREGATES, SPREAD)))
    first, *others = groups
    paired = (other for other in others if comparable and seeds_of(first) & seeds_of(other))
    return SettingComparison(
        setting=" / ".join(dict.fromkeys(group.setting for group in groups)),
        comparable=comparable,
        why_not="" if comparable else NOT_COMPARABLE.format(fields=", ".join(filter(is_of_setting, fields))),
        columns=tuple(audit_row(group, sources, (*metrics, *aggregates)) for group in groups),
        metrics=metrics,
        aggregates=aggregates,
        rules=tuple(_rules(groups, sources.known)),
        paired=tuple(row for other in paired for row in paired_rows(first, other, sources.values)),
        fields=fields,
        sites=compared_sites(groups, sources.known),
        exact=tuple(
            tuple(exact_sites(card(sources.report, "methods", group.runs[0].record.spec.method), sites_of(group.runs)))
            for group in groups
        ),
    )


def _rules(groups: Sequence[Group], known: Known) -> Iterator[ComparedRule]:
    rows_by_column = [finding_rows(one.runs, group_label(one), one.setting, known) for one in groups]
    fires = [{row.name: ", ".join(row.cells) for row in first_fires(group.runs)} for group in groups]
    titles = {row.rule: row.title for rows in rows_by_column for row in rows}
    for rule, title in titles.items():
        cells = tuple(tuple(row for row in rows if row.rule == rule) for rows in rows_by_column)
        required = tuple(dict.fromkeys(row.required for cell in cells for row in cell))
        yield ComparedRule(rule, title, required, cells, tuple(fire.get(rule, "never") for fire in fires))


def _unpaired(columns: Sequence[Group]) -> Iterator[str]:
    for other in columns[1:]:
        if not seeds_of(columns[0]) & seeds_of(other):
            yield f"{group_label(columns[0])} and {group_label(other)} share no seed, so there is no paired difference."


def _figures(part: SettingComparison, columns: Sequence[Group], sources: Sources) -> SettingFigures:
    settings = list(dict.fromkeys(_setting(column).identity for column in columns))
    column_run_ids = {run.record.run_id for run in _runs(columns)}
    background = [
        group
        for group in sources.groups
        if group.runs[0].record.spec.control == "frozen"
        and _setting(group).identity in settings
        and group.runs[0].record.run_id not in column_run_ids
    ]
    ordered = sorted([*columns, *background], key=lambda group: settings.index(_setting(group).identity))
    shown = setting_figures(ordered, sources.report.cards).shown
    return SettingFigures(
        columns[0].setting,
        tuple(figure for one in shown for figure in one.figures),
        next((one.map for one in shown if one.map), None),
        tuple(figure for one in shown for figure in one.heat_maps),
        layer_figure(part),
    )


def _setting(group: Group) -> RunSpec:
    return group.runs[0].record.spec.setting


def _runs(columns: Iterable[Group]) -> list[RunAudit]:
    return [run for column in columns for run in column.runs]


@dataclass(frozen=True)
class ComparedRule:
    """The judgements of one rule on all columns.

    Attributes:
        required: The requirement as text; several texts if the limits differ between columns.
        columns: For each column, one row per group of seeds with the same judgement.
        first_fires: The epochs of first fire as text, one text per column.
    """

    rule: str
    title: str
    required: tuple[str, ...]
    columns: tuple[tuple[FindingRow, ...], ...]
    first_fires: tuple[str, ...]


@dataclass(frozen=True)
class PairedRow:
    """The difference of a metric between two columns, over their shared seeds.

    Attributes:
        unit: Unit of the difference. A difference of decimal logarithms has the unit `decades`.
        difference: Mean of first − second.
        low: Lower end of the 95 % interval, or the reason why there is no interval.
        high: Upper end of the 95 % interval, or the reason why there is no interval.
        answer: `higher`, `lower`, `undecided` (the interval contains 0), `provisional` (no interval) or `none` (no seed has a value
            in both columns).
    """

    first: str
    second: str
    words: str
    unit: str
    difference: Number
    low: Reading
    high: Reading
    seeds: tuple[int, ...]
    answer: str
    remark: str


@dataclass(frozen=True)
class SettingComparison:
    """One part of the comparison page.

    Attributes:
        why_not: The reason why the settings of the columns are not comparable; empty if they are comparable.
        columns: One column per compared method or run, with the means over seeds.
        metrics: The metrics of the audit table, and the other metrics with one number per run.
        aggregates: Γ with each aggregation, and the spread of these values.
        fields: Field of the specification that differs between the columns → its value in each column, as text.
        sites: Each metric by site; its rows are the sites, with one estimate per column.
        exact: For each column, the sites where the credit is exact by construction, so Γ = 1 is uninformative.
    """

    setting: str
    comparable: bool
    why_not: str
    columns: tuple[AuditRow, ...]
    metrics: tuple[Metric, ...]
    aggregates: tuple[Metric, ...]
    rules: tuple[ComparedRule, ...]
    paired: tuple[PairedRow, ...]
    fields: Mapping[str, tuple[str, ...]]
    sites: tuple[Row[Estimate], ...]
    exact: tuple[tuple[int, ...], ...]

    def exact_sites(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Return, for each column, the sites where this metric is uninformative.

        There, the credit is exact by construction.
        """
        return self.exact if name == "gamma" else ((),) * len(self.columns)

    def __json__(self) -> dict[str, Any]:
        """Return the part as the option --json prints it: metrics with one estimate per column."""
        return {
            **{name: getattr(self, name) for name in ("setting", "comparable", "why_not")},
            "columns": [
                {
                    "label": column.method,
                    "setting": column.setting,
                    "verdict": column.verdict,
                    "seeds": [(seed.seed, seed.run_id, seed.verdict) for seed in column.seeds],
                    "replays": column.replays,
                }
                for column in self.columns
            ],
            "quantities": list(map(self._in_json, self.metrics)),
            "aggregates": list(map(self._in_json, self.aggregates)),
            "rules": self.rules,
            "paired": self.paired,
            "fields": [{"field": name, "values": values} for name, values in self.fields.items()],
            "sites": [
                {
                    **{name: getattr(metric, name) for name in ("name", "symbol", "words")},
                    "rows": [(int(row.name), row.cells) for row in metric.rows],
                    "exact": self.exact_sites(metric.name),
                }
                for metric in self.sites
            ],
        }

    def _in_json(self, metric: Metric) -> dict[str, Any]:
        texts = {name: getattr(metric, name) for name in ("name", "symbol", "words", "label")}
        return {**texts, "estimates": [column.estimates[metric.name] for column in self.columns]}


@dataclass(frozen=True)
class CompareContext:
    """compare.html.j2: the page that compares methods or runs, one per column."""

    title: str
    """the labels of the compared methods or runs"""
    selection: str
    """how the runs were chosen"""
    edition: EditionReference
    """the edition (set of rules) that judged the runs"""
    overrides: tuple[Entry, ...]
    """thresholds changed on the command line"""
    series_label: str
    """number of per-epoch values that the author stated and the audit did not recompute; empty if there are none"""
    integrity: tuple[Count, ...]
    """number of runs in each integrity state; trusted: metrics as logged, not recomputed"""
    means: str
    """the kind of mean over seeds (arithmetic or geometric) of each metric"""
    parts: tuple[tuple[SettingComparison, SettingFigures], ...]
    """the comparison, one part per setting, with its figures"""
    excluded: Truncated[Exclusion]
    """runs that belong to the comparison but cannot be judged, with the reasons"""
    remarks: tuple[str, ...]
    """the columns that are left out, and the remarks of the audit"""
    commands: Truncated[str]
    """the command lines that retrain the compared runs (shell)"""


NO_FIELD = "—"
OF_A_METHOD = (
    *("method", "method_options", "penalty", "penalty_embedding", "control", "seed", "weights"),
    *(f"recipe.{name}" for name in OF_CREDIT),
)


def differing_fields(columns: Sequence[Group]) -> dict[str, tuple[str, ...]]:
    """Return field → its value in each column, for the fields with different values.

    The seeds of a column are one value.
    """
    seeds = (", ".join(str(run.record.spec.seed) for run in column.runs) for column in columns)
    specs = (column.runs[0].record.spec for column in columns)
    specs = ({**jsonio.encode(spec), "recipe": jsonio.encode(vars(spec.recipe))} for spec in specs)
    flat = [dict(_flat({**spec, "seed": seed})) for spec, seed in zip(specs, seeds, strict=True)]
    names = dict.fromkeys(name for fields in flat for name in fields)
    values = {name: tuple(fields.get(name, NO_FIELD) for fields in flat) for name in names}
    return {name: different for name, different in values.items() if len(set(different)) > 1}


def is_of_setting(field: str) -> bool:
    """Return whether runs that differ in this field cannot be compared."""
    return field not in OF_A_METHOD and not field.startswith("method_options.")


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, value as text) of every field without subfields."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)


PANELS = {"g": "g_norm_mean_ce", "gamma": "gamma"}  # panel of the figure by site → metric
SITE_COLUMNS = ("panel", "method", "setting", "site", "value", "low", "high", "reason", "exact")


def compared_sites(groups: Sequence[Group], known: Known) -> tuple[Row[Estimate], ...]:
    """Return the metrics by site, as means over the seeds of each column.

    The metrics are Γ, ‖h‖, ‖g‖ and metrics that are in no other table.
    """
    measured = (name for run in _runs(groups) for name in run.record.measurements.sites)
    metrics = (*map(metric_named, TABLES["comparison_sites"]), *other_metrics(measured, known))
    return tuple(row for metric in metrics if (row := _by_site(metric, groups)).rows)


def _by_site(metric: Metric, groups: Sequence[Group]) -> Row[Estimate]:
    count = max((len(site_row(run.record, metric.name)) for run in _runs(groups)), default=0)
    rows = (
        Row(str(site), tuple(Values().estimate(group.runs, metric, site) for group in groups)) for site in range(count)
    )
    return Row(metric.name, (), metric.symbol, metric.words, rows=tuple(rows))


def layer_numbers(part: SettingComparison) -> pd.DataFrame:
    """Return the mean over seeds and its interval, one row per panel of the figure, site and column."""
    by_name = {metric.name: metric.rows for metric in part.sites}
    rows = [
        (panel, column.method, column.setting, int(row.name), mean.value, low.value, high.value, mean.reason, is_exact)
        for panel, name in PANELS.items()
        for row in by_name.get(name, ())
        for column, shown, exact in zip(part.columns, row.cells, part.exact_sites(name), strict=True)
        for mean, low, high, is_exact in [(shown.mean.reading, shown.low, shown.high, int(row.name) in exact)]
    ]
    frame = pd.DataFrame(rows, columns=list(SITE_COLUMNS))
    return frame.astype(dict.fromkeys(("site", "value", "low", "high"), float))


def layer_figure(part: SettingComparison) -> PageFigure | None:
    """Return the figure of ‖g_l‖ and Γ_l by site, or None if no column has a number."""
    frame = layer_numbers(part)
    if frame["value"].isna().all():
        return None
    text = []
    for metric in (metric for metric in part.sites if metric.name in TABLES["comparison_sites"]):
        first, last = metric.rows[0], metric.rows[-1]
        for column, *ends in zip(part.columns, first.cells, last.cells, strict=True):
            span = " to ".join(filters.number(shown.mean) for shown in ends)
            text.append(f"{metric.symbol} of {column.method} from {span}")
    gradient, gamma = (metric_named(name).symbol for name in PANELS.values())
    return PageFigure(
        "By site",
        f"By site, first to last: {'; '.join(text)}.",
        f"{gradient} (geometric mean) and {gamma} by site, with 95 % intervals over seeds.",
        figure_of(by_site.draw, frame),
    )


def paired_rows(first: Group, second: Group, values: Values) -> Iterator[PairedRow]:
    """Yield the difference between two columns, for each metric that both columns contain."""
    headlines = headlines_of(run.record for group in (first, second) for run in group.runs)
    for metric in (metric_named(name, values.known) for name in table("comparison", headlines)):
        terms_a, terms_b = (_terms(group, metric, values) for group in (first, second))
        if terms_a and terms_b:
            yield _paired_row(metric, first, second, terms_a, terms_b)


def seeds_of(group: Group) -> set[int]:
    return {run.record.spec.seed for run in group.runs}


def _terms(group: Group, metric: Metric, values: Values) -> dict[int, float]:
    """Return seed → value on the scale on which differences are computed.

    Seeds without a value are left out. A fraction is converted to percentage points. A metric on a ratio scale is replaced by its
    decimal logarithm.
    """
    readings = {run.record.spec.seed: values.value(run, metric).reading.value for run in group.runs}
    if metric.mean == GEOMETRIC:
        return {seed: math.log10(value) for seed, value in readings.items() if value is not None and value > 0}
    factor = 100.0 if metric.kind == "pct" else 1.0
    return {seed: factor * value for seed, value in readings.items() if value is not None}


def _difference(quantity: Metric) -> tuple[str, str]:
    if quantity.mean == GEOMETRIC:
        return "decades", "num"
    return ("percentage points", "pp") if quantity.kind == "pct" else (quantity.unit, quantity.kind)


def _paired_row(
    metric: Metric, first: Group, second: Group, terms_a: Mapping[int, float], terms_b: Mapping[int, float]
) -> PairedRow:
    shared = terms_a.keys() & terms_b.keys()
    unit, kind = _difference(metric)
    subject = group_label(first), group_label(second), metric.label, unit
    if not shared:
        none = Reading(None, "no seed has a value in both columns")
        return PairedRow(*subject, Number(none, kind, ()), none, none, (), "none", none.reason)
    difference = paired_difference(*({seed: terms[seed] for seed in shared} for terms in (terms_a, terms_b)))
    scale = 100.0 if metric.kind == "pct" else 1.0
    records = ([run.record for run in group.runs] for group in (first, second))
    difference = with_samples(difference, metric.name, scale, *records)
    remarks = [difference.remark] if difference.remark else []
    if missing := sorted((seeds_of(first) | seeds_of(second)) - shared):
        remarks.append(f"without seed {', '.join(map(str, missing))}, for which one of the columns has no value")
    ids = tuple(run.record.run_id for run in (*first.runs, *second.runs) if run.record.spec.seed in shared)
    low = high = Reading(None, "only one shared seed, so there is no interval")
    if difference.interval:
        low, high = Reading(difference.interval.low), Reading(difference.interval.high)
    return PairedRow(
        *subject,
        difference=Number(Reading(difference.mean), kind, ids),
        low=low,
        high=high,
        seeds=difference.seeds,
        answer=_answer(difference),
        remark="; ".join(remarks),
    )


def _answer(difference: PairedDifference) -> str:
    if difference.interval is None:
        return "provisional"
    if not excludes(difference.interval, 0.0):
        return "undecided"
    return "higher" if difference.mean > 0 else "lower"
