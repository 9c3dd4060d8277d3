"""Analysis `sensitivity`: the range of each threshold in which no verdict changes.

The range is exact, and no grid is searched. The result of a comparison can change only if the threshold passes an
observed value. Therefore each run is judged again only at its observed values and at the next float64 number beyond
each of them. For a rule over seeds, the group of runs is judged again instead of a single run.
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

SHOWN = 3  # changes named in the text; all runs are in the cell's run ids
END = "whether the threshold `{word}` is included in the range"
COLUMNS = (
    AnalysisColumn("rule", "rule, and the condition if the rule has several conditions"),
    AnalysisColumn("quantity", "metric that is compared with the threshold"),
    AnalysisColumn("unit", "unit of the metric and of all thresholds in this row"),
    AnalysisColumn("threshold", "threshold of the edition", "of the metric", "chosen"),
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
    AnalysisColumn("outcome_high", "highest threshold at which no outcome changes", "of the metric", "num"),
)
OBSERVED = (
    AnalysisColumn("rule", "rule, and the condition if the rule has several conditions"),
    AnalysisColumn("quantity", "metric that is compared with the threshold"),
    AnalysisColumn("method", "method and its options"),
    AnalysisColumn("setting", "setting of the runs; methods are compared within one setting"),
    AnalysisColumn("seeds", "seeds of the runs that have this value"),
    AnalysisColumn(
        "value", "observed value; for a rule over seeds, also the ends of the interval", "of the metric", "num"
    ),
    AnalysisColumn("verdict", "verdict with the thresholds of the edition"),
)


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Find the range of each threshold in which no run's verdict changes.

    Returns:
        Two tables: the range of each threshold with the runs that limit it, and all observed values at which a verdict can
        change.
    """
    rows, observed = [], []
    for limit in limits(edition):
        judged = units(report, edition, limit)
        low, high = (_tightest(judged, limit.threshold, side, label=True) for side in (-1, 1))
        outcomes = [_tightest(judged, limit.threshold, side, label=False) for side in (-1, 1)]
        absent = _absence(judged, limit.rule)
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
        observed += _observed(limit.name, limit.condition.quantity, judged)
    tables = (
        AnalysisTable("sensitivity", "Range of each threshold in which no verdict changes", COLUMNS, tuple(rows)),
        AnalysisTable(
            "observed", "Values of a threshold at which a verdict can change", OBSERVED, tuple(observed), detail=True
        ),
    )
    remark = "Only one threshold is changed at a time. WARN(D1) and PASS count as different verdicts."
    return AnalysisResult(tables, (remark,))


def _tightest(judged: Iterable[JudgedUnit], threshold: float, side: int, label: bool) -> ThresholdEdge | None:
    """Return the nearest threshold on one side at which a verdict of any unit changes."""
    found: dict[int, ThresholdEdge] = {}  # by the unit's index
    reached = math.inf
    for start, place, unit in sorted(
        ((_start(unit, threshold, side), place, unit) for place, unit in enumerate(judged)), key=lambda one: one[:2]
    ):
        if start > reached:  # judging again takes time, and a nearer edge than any of this unit is known
            break
        one = edge(unit, threshold, side, label)
        if one:
            found[place] = one
            reached = min(reached, side * one.value)
    nearest = [found[place] for place in sorted(found) if side * found[place].value == reached]
    changes = tuple(change for one in nearest for change in one.changes)
    return dataclasses.replace(nearest[0], changes=changes) if nearest else None


def _start(unit: JudgedUnit, threshold: float, side: int) -> float:
    return min((side * value for value in unit.values if side * value >= side * threshold), default=math.inf)


def _absence(judged: Sequence[JudgedUnit], rule: Rule) -> str:
    """Return a format string with the reason why a threshold has no limit."""
    if not rule.gating:
        return "no {0} limit, because the verdict does not depend on this rule"
    if rule.judge == CREDIT:
        return f"no {{0}} limit: {NOT_WORKED_OUT}"
    if not any(unit.values for unit in judged):
        return "no {0} limit, because no run has a value of the metric"
    return "no {0} limit, because no verdict changes at any threshold"


def _side(name: str, beyond: str, found: ThresholdEdge | None, absent: str) -> dict[str, AnalysisCell]:
    if found is None:
        unlimited = {f"{name}_end": AnalysisCell(text="no limit"), beyond: AnalysisCell(text="nothing")}
        return {name: _end(None, absent, name), **unlimited}
    named = _changed(found)
    more = [f"and {len(named) - SHOWN} more"] if len(named) > SHOWN else []
    return {
        name: _end(found, absent, name),
        f"{name}_end": AnalysisCell(text="included" if found.included else "excluded"),
        beyond: AnalysisCell(text="; ".join(named[:SHOWN] + more)),
    }


def _changed(found: ThresholdEdge) -> list[str]:
    """Return one text per method and change: `dfa s42, s123: FAIL(D1+D3) → FAIL(D3)`."""
    seeds: dict[tuple[str, str, str], list[str]] = {}
    for change in found.changes:
        key = (change.method.label, change.before, change.after)
        seeds.setdefault(key, []).append(f"s{change.run.record.spec.seed}")
    return [f"{label} {', '.join(several)}: {before} → {after}" for (label, before, after), several in seeds.items()]


def _end(found: ThresholdEdge | None, absent: str, name: str) -> AnalysisCell:
    if found is None:
        return AnalysisCell(Reading(None, absent.format("lower" if name == "low" else "upper")))
    return AnalysisCell(Reading(found.value), run_ids=tuple(change.run.record.run_id for change in found.changes))


def _observed(name: str, quantity: str, judged: Iterable[JudgedUnit]) -> list[dict[str, AnalysisCell]]:
    rows, shared = [], {"rule": AnalysisCell(text=name), "quantity": AnalysisCell(text=quantity)}
    for unit in judged:
        ids = tuple(run.record.run_id for run in unit.runs)
        labels = dict.fromkeys(run.verdict.label for run in unit.runs)
        cells = {
            **shared,
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
