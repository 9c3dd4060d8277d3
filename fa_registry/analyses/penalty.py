"""Analysis `penalty`: the effect of the residual penalty λ.

The analysis compares runs that differ only in λ.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial

from fa_registry.analyses._methods import (
    METHOD,
    RUNS,
    SETTING,
    MethodRuns,
    Pick,
    by_seed,
    estimate,
    last_site,
    mean_cell,
    mid_site,
    quantity_column,
    scalar,
    trained,
)
from fa_registry.analyses.base import (
    Analyser,
    AnalysisCell,
    AnalysisColumn,
    AnalysisResult,
    AnalysisTable,
    without_rows,
)
from fa_registry.metrics import ACCURACY, HEADLINE_GAMMA, is_scale
from fa_registry.protocol.answer_intervals import with_samples
from fa_registry.protocol.grouping import seeds_key
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading
from fa_registry.statistics import paired_difference
from fa_registry.statistics.samples import LARGEST


@dataclass(frozen=True)
class SweepColumn:
    """A metric that the penalty sweep compares.

    Values of a metric on a ratio scale are compared by their ratio; other values are compared by their difference.

    Args:
        name: name of the metric in the catalog of metrics.
        column: column of the metric in the tables.
        pick: function that reads the metric from a run.
    """

    name: str
    column: AnalysisColumn
    pick: Pick

    @property
    def scale(self) -> bool:
        return is_scale(self.name)


MIDDLE = "at site ⌊L/2⌋"
QUANTITIES = (
    SweepColumn(ACCURACY.name, quantity_column(ACCURACY.name, ACCURACY.name), scalar(ACCURACY.name)),
    SweepColumn("h_L", quantity_column("h_L", "h_L", "length of the state"), scalar("h_L")),
    SweepColumn("growth_max", quantity_column("growth_max", "growth_max"), scalar("growth_max")),
    SweepColumn(
        "g_norm_mean_ce_L",
        quantity_column("g_L", "g_norm_mean_ce_L", "loss per unit of state"),
        last_site("g_norm_mean_ce"),
    ),
    SweepColumn(HEADLINE_GAMMA, quantity_column("gamma", HEADLINE_GAMMA), scalar(HEADLINE_GAMMA)),
    SweepColumn("rho", quantity_column("rho", "rho", "correlation", MIDDLE), mid_site("rho")),
    SweepColumn("nudge", quantity_column("nudge", "nudge", "nats", f"{MIDDLE}, negative is good"), mid_site("nudge")),
)
PENALTY = AnalysisColumn("penalty", "λ of the residual penalty", kind="chosen")
COLUMNS = (METHOD, SETTING, PENALTY, RUNS, *(quantity.column for quantity in QUANTITIES))
DIFFERENCES = (
    METHOD,
    SETTING,
    PENALTY,
    AnalysisColumn(
        "baseline", "λ of the baseline: this row is compared with the runs at this λ, paired by seed", kind="chosen"
    ),
    AnalysisColumn(
        "accuracy_outcome",
        "whether the accuracy is higher or lower than at the baseline λ; neither if the 95 % interval of the difference includes 0",
    ),
    *(
        dataclasses.replace(
            one.column,
            words=f"{one.column.name} {'divided by' if one.scale else 'minus'} its value at the baseline λ, paired by seed",
            unit="ratio" if one.scale else "percentage points" if one.column.kind == "pct" else one.column.unit,
            kind="num" if one.scale else "pp" if one.column.kind == "pct" else one.column.kind,
        )
        for one in QUANTITIES
    ),
)


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Compare, for every method, the runs at each penalty strength λ with the runs at the smallest λ.

    Returns:
        Two tables: the metrics at each λ over seeds, and the paired differences from the runs with the smallest λ.
    """
    rows, differences, remarks = [], [], []
    for sweep in sweeps(report):
        if len(sweep) == 1:
            single = sweep[0]
            remarks.append(
                f"no penalty sweep: {_base(single)} in {single.group.setting} was run only with λ = {_strength(single):g}"
            )
            continue
        for method in sweep:
            rows.append(
                {**_named(method), RUNS.name: method.cells[RUNS.name]}
                | {metric.column.name: mean_cell(method.runs, metric.name, metric.pick) for metric in QUANTITIES}
            )
        differences += [_differences(method, sweep[0]) for method in sweep[1:]]
    tables = (
        AnalysisTable("penalty", "Results at each strength λ of the penalty, over seeds", COLUMNS, tuple(rows)),
        AnalysisTable(
            "differences", "Differences from the smallest λ, paired by seed", DIFFERENCES, tuple(differences)
        ),
    )
    return AnalysisResult(tables, tuple(remarks))


def sweeps(report: AuditReport) -> tuple[tuple[MethodRuns, ...], ...]:
    """Return groups of methods that differ only in λ, each sorted by λ; a group may have only one λ."""
    sweeps_by_key: dict[str, list[MethodRuns]] = {}
    for method in trained(report):
        spec = dataclasses.replace(method.runs[0].record.spec, penalty=0.0)
        sweeps_by_key.setdefault(seeds_key(spec), []).append(method)
    return tuple(tuple(sorted(sweep, key=_strength)) for sweep in sweeps_by_key.values())


def _strength(method: MethodRuns) -> float:
    return method.runs[0].record.spec.penalty


def _base(method: MethodRuns) -> str:
    spec = dataclasses.replace(method.runs[0].record.spec, penalty=0.0)
    return f"{spec.label}{method.mark}"


def _named(method: MethodRuns) -> dict[str, AnalysisCell]:
    ids = method.cells[METHOD.name].run_ids
    return {
        METHOD.name: AnalysisCell(text=_base(method), run_ids=ids),
        SETTING.name: method.cells[SETTING.name],
        PENALTY.name: AnalysisCell(Reading(_strength(method)), run_ids=ids),
    }


def _differences(method: MethodRuns, baseline: MethodRuns) -> dict[str, AnalysisCell]:
    cells = {item.column.name: _difference(method, baseline, item) for item in QUANTITIES}
    return {
        **_named(method),
        "baseline": AnalysisCell(Reading(_strength(baseline)), run_ids=baseline.cells[METHOD.name].run_ids),
        "accuracy_outcome": AnalysisCell(text=_outcome(cells[QUANTITIES[0].column.name])),
        **cells,
    }


def _outcome(difference: AnalysisCell) -> str:
    """Return whether the accuracy is higher or lower than that of the baseline, according to the interval."""
    if difference.reading.value is None:
        return difference.reading.reason
    if difference.interval is None:
        return "provisional"
    low, high = difference.interval
    return "higher" if low > 0 else "lower" if high < 0 else "undecided"


def _difference(method: MethodRuns, baseline: MethodRuns, metric: SweepColumn) -> AnalysisCell:
    """Return the mean paired difference from the baseline, with its 95 % interval.

    For a metric on a ratio scale, return the geometric mean of the paired ratios instead."""
    runs = (*baseline.runs, *method.runs)
    readings = {run.record.run_id: metric.pick(run.record) for run in runs}
    ids_not_finite = [run_id for run_id, reading in readings.items() if reading.not_finite]
    if ids_not_finite:
        return AnalysisCell(readings[ids_not_finite[0]], run_ids=tuple(ids_not_finite))
    method_values, baseline_values = (by_seed(entry.runs, metric.name, metric.pick) for entry in (method, baseline))
    common = method_values.keys() & baseline_values.keys()
    ids = tuple(run.record.run_id for run in runs if run.record.spec.seed in common)
    if not common:
        missing = next((reading for reading in readings.values() if reading.value is None), None)
        return AnalysisCell(missing or Reading(None, "no common seed"), run_ids=tuple(readings))
    values = [values_by_seed[seed] for values_by_seed in (method_values, baseline_values) for seed in common]
    if (metric.scale and min(values) <= 0) or (not metric.scale and max(map(abs, values)) > LARGEST):
        reason = f"no difference can be computed for values between {min(values):.3g} and {max(values):.3g}"
        return AnalysisCell(Reading(None, reason), run_ids=ids)
    factor = 100 if metric.column.kind == "pct" else 1
    method_values, baseline_values = (
        {seed: math.log10(values_by_seed[seed]) if metric.scale else factor * values_by_seed[seed] for seed in common}
        for values_by_seed in (method_values, baseline_values)
    )
    records = ([run.record for run in entry.runs] for entry in (method, baseline))
    difference = with_samples(paired_difference(method_values, baseline_values), metric.name, float(factor), *records)
    interval = (difference.interval.low, difference.interval.high) if difference.interval else None
    return estimate(difference.mean, interval, len(difference.seeds), ids, metric.scale)


PLUGIN = Analyser(
    name="penalty",
    title="Penalty sweep",
    question="How does the strength of the residual penalty change accuracy, scale and credit of a method?",
    source="arXiv 2606.21126, sweep of the penalty on DFA",
    answer=answer,
    rank=3,
    silence=partial(without_rows, reason="no method was run with more than one λ"),
    figure="fa_registry.reporting.figures.analyses.penalty",
)
