"""Analysis `sensitivity`: the range of each threshold in which no verdict changes.

The range is exact, because the analysis does not search a grid. A rule can fire or stop firing only if its threshold passes
an observed value. Therefore each run is judged again only at its observed values and at the next float64 number beyond
each observed value. For a rule over seeds, all runs of a method are judged again together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from fa_registry.analyses._rejudge import NOT_WORKED_OUT, JudgedUnit, ThresholdEdge, edge, limits, units
from fa_registry.analyses.base import Analyser, AnalysisCell, AnalysisColumn, AnalysisResult, AnalysisTable
from fa_registry.protocol.edition_schema import CREDIT
from fa_registry.protocol.rules import Edition, Rule
from fa_registry.records import AuditReport, Reading

SHOWN = 3  # changes that a text names; the run ids of the cell contain all runs
END = "whether the threshold `{word}` is included in the range"
COLUMNS = (
    AnalysisColumn("rule", "code of the rule, and the condition if the rule has several conditions"),
    AnalysisColumn("quantity", "metric that is compared with the threshold"),
    AnalysisColumn("unit", "unit of the metric and of all thresholds in this row"),
    AnalysisColumn("threshold", "threshold that the edition sets", "of the metric", "chosen"),
    AnalysisColumn("low", "lowest threshold at which no verdict changes", "of the metric", "num"),
    AnalysisColumn("low_end", END.format(word="low")),
    AnalysisColumn("below", "verdicts that change if the threshold is below `low`"),
    AnalysisColumn("high", "highest threshold at which no verdict changes", "of the metric", "num"),
    AnalysisColumn("high_end", END.format(word="high")),
    AnalysisColumn("above", "verdicts that change if the threshold is above `high`"),
    AnalysisColumn(
        "outcome_low",
        "lowest threshold at which no outcome (pass, warn, fail, incomplete) changes",
        "of the metric",
        "num",
    ),
    AnalysisColumn(
        "outcome_high",
        "highest threshold at which no outcome (pass, warn, fail, incomplete) changes",
        "of the metric",
        "num",
    ),
)
OBSERVED = (
    AnalysisColumn("rule", "code of the rule, and the condition if the rule has several conditions"),
    AnalysisColumn("quantity", "metric that is compared with the threshold"),
    AnalysisColumn("method", "method and its options"),
    AnalysisColumn("setting", "setting of the runs; methods are compared within one setting"),
    AnalysisColumn("seeds", "seeds of the runs that have this value"),
    AnalysisColumn(
        "value",
        "observed value of the metric; for a rule over seeds, also the ends of the confidence interval",
        "of the metric",
        "num",
    ),
    AnalysisColumn("verdict", "verdict with the thresholds of the edition"),
)


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Find the range of each threshold within which no verdict of a run changes.

    Returns:
        Two tables: the range of each threshold with the runs that limit this range, and all observed values at which a verdict can
        change.
    """
    rows, observed = [], []
    for limit in limits(edition):
        judged_units = units(report, edition, limit)
        low, high = (_tightest(judged_units, limit.threshold, side, label=True) for side in (-1, 1))
        outcomes = [_tightest(judged_units, limit.threshold, side, label=False) for side in (-1, 1)]
        absent = _absence(judged_units, limit.rule)
        rows.append(
            {
                "rule": AnalysisCell(text=limit.name),
                "quantity": AnalysisCell(text=limit.condition.quantity),
                "unit": AnalysisCell(text=limit.condition.unit),
                "threshold": AnalysisCell(Reading(limit.threshold)),
                **_side("low", "below", low, absent),
                **_side("high", "above", high, absent),
                "outcome_low": _end(outcomes[0], absent, "low"),
                "outcome_high": _end(outcomes[1], absent, "high"),
            }
        )
        observed += _observed(limit.name, limit.condition.quantity, judged_units)
    tables = (
        AnalysisTable("sensitivity", "Range of each threshold in which no verdict changes", COLUMNS, tuple(rows)),
        AnalysisTable(
            "observed", "Values of a threshold at which a verdict can change", OBSERVED, tuple(observed), detail=True
        ),
    )
    remark = "Only one threshold is changed at a time. WARN(D1) and PASS count as different verdicts."
    return AnalysisResult(tables, (remark,))


def _tightest(judged_units: Iterable[JudgedUnit], threshold: float, side: int, label: bool) -> ThresholdEdge | None:
    """Return the nearest threshold on one side at which the verdict of a run or of a group changes."""
    edges: dict[int, ThresholdEdge] = {}  # index of a unit → its edge
    nearest_value = math.inf
    for start, index, unit in sorted(
        ((_start(unit, threshold, side), position, unit) for position, unit in enumerate(judged_units)),
        key=lambda one: one[:2],
    ):
        if start > nearest_value:  # every edge of this unit is farther than a known edge
            break
        candidate = edge(unit, threshold, side, label)
        if candidate:
            edges[index] = candidate
            nearest_value = min(nearest_value, side * candidate.value)
    nearest = [edges[position] for position in sorted(edges) if side * edges[position].value == nearest_value]
    changes = tuple(change for nearest_edge in nearest for change in nearest_edge.changes)
    return dataclasses.replace(nearest[0], changes=changes) if nearest else None


def _start(unit: JudgedUnit, threshold: float, side: int) -> float:
    return min((side * value for value in unit.values if side * value >= side * threshold), default=math.inf)


def _absence(judged_units: Sequence[JudgedUnit], rule: Rule) -> str:
    """Return a format string with the reason why a threshold has no limit."""
    if not rule.gating:
        return "no {0} limit, because the verdict does not depend on this rule"
    if rule.judge == CREDIT:
        return f"no {{0}} limit: {NOT_WORKED_OUT}"
    if not any(unit.values for unit in judged_units):
        return "no {0} limit, because no run has a value of the metric"
    return "no {0} limit, because no verdict changes at any threshold"


def _side(name: str, changes_name: str, threshold_edge: ThresholdEdge | None, absent: str) -> dict[str, AnalysisCell]:
    if threshold_edge is None:
        unlimited = {f"{name}_end": AnalysisCell(text="no limit"), changes_name: AnalysisCell(text="nothing")}
        return {name: _end(None, absent, name), **unlimited}
    change_texts = _changed(threshold_edge)
    truncation_notes = [f"and {len(change_texts) - SHOWN} more"] if len(change_texts) > SHOWN else []
    return {
        name: _end(threshold_edge, absent, name),
        f"{name}_end": AnalysisCell(text="included" if threshold_edge.included else "excluded"),
        changes_name: AnalysisCell(text="; ".join(change_texts[:SHOWN] + truncation_notes)),
    }


def _changed(threshold_edge: ThresholdEdge) -> list[str]:
    """Return one text per method and change: `dfa s42, s123: FAIL(D1+D3) → FAIL(D3)`."""
    seeds: dict[tuple[str, str, str], list[str]] = {}
    for change in threshold_edge.changes:
        key = (change.method.label, change.before, change.after)
        seeds.setdefault(key, []).append(f"s{change.run.record.spec.seed}")
    return [f"{label} {', '.join(seed_names)}: {old} → {new}" for (label, old, new), seed_names in seeds.items()]


def _end(threshold_edge: ThresholdEdge | None, absent: str, name: str) -> AnalysisCell:
    if threshold_edge is None:
        return AnalysisCell(Reading(None, absent.format("lower" if name == "low" else "upper")))
    return AnalysisCell(
        Reading(threshold_edge.value), run_ids=tuple(change.run.record.run_id for change in threshold_edge.changes)
    )


def _observed(name: str, quantity: str, judged_units: Iterable[JudgedUnit]) -> list[dict[str, AnalysisCell]]:
    rows, shared_cells = [], {"rule": AnalysisCell(text=name), "quantity": AnalysisCell(text=quantity)}
    for unit in judged_units:
        ids = tuple(run.record.run_id for run in unit.runs)
        labels = dict.fromkeys(run.verdict.label for run in unit.runs)
        cells = {
            **shared_cells,
            "method": AnalysisCell(text=unit.method.label),
            "setting": unit.method.cells["setting"],
            "seeds": AnalysisCell(text=", ".join(dict.fromkeys(str(run.record.spec.seed) for run in unit.runs))),
            "verdict": AnalysisCell(text=", ".join(labels)),
        }
        rows += [{**cells, "value": AnalysisCell(reading, run_ids=ids)} for reading in unit.shown]
    return rows


PLUGIN = Analyser(
    name="sensitivity",
    title="Threshold sensitivity",
    question="How far can each threshold be changed before the verdict of a run changes?",
    source="arXiv 2606.21126, which gives such a range for D1 and for D2",
    answer=answer,
    rank=1,
)
