"""Analysis `sensitivity`: the range of each threshold in which no verdict changes.

The range is exact, because the analysis does not search a grid. A rule can fire or stop firing only if its threshold passes
an observed value. Therefore each run is judged again only at its observed values and at the next float64 number beyond
each observed value. For a rule over seeds, all runs of a setting are judged again together, also at the ends of the wider intervals
of Holm's procedure.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cached_property

from fa_registry.analyses._methods import METHOD, SETTING, MethodRuns, trained
from fa_registry.analyses.base import Analyser, AnalysisCell, AnalysisColumn, AnalysisResult, AnalysisTable
from fa_registry.metrics import HEADLINES
from fa_registry.protocol.edition_schema import CREDIT, LIMIT, REFERENCE_METRICS, SEEDS
from fa_registry.protocol.engine import grouped_cases, judge_rule
from fa_registry.protocol.grouping import seeds_key
from fa_registry.protocol.last_block import last_block_controls
from fa_registry.protocol.multiplicity import simultaneous_ends
from fa_registry.protocol.operators import take
from fa_registry.protocol.paired_runs import RunWithControl, SeedGroup
from fa_registry.protocol.rules import Condition, Edition, Rule, overridden
from fa_registry.protocol.verdict import verdict
from fa_registry.protocol.waivers import waived
from fa_registry.records import AuditReport, Finding, Reading, RunAudit, RunRecord, Verdict, Waiver
from fa_registry.statistics import CONFIDENCE

SHOWN = 3  # changes that a text names; the run ids of the cell contain all runs
NOT_WORKED_OUT = (
    "not computed, because a rule about the distribution of credit excludes some sites before it compares values"
)
COLUMNS = (
    AnalysisColumn("rule", "code of the rule, and the condition if the rule has several conditions"),
    AnalysisColumn("quantity", "metric that is compared with the threshold"),
    AnalysisColumn("unit", "unit of the metric and of all thresholds in this row"),
    AnalysisColumn("threshold", "threshold that the edition sets", "of the metric", "chosen"),
    AnalysisColumn("same", "thresholds that give the same verdicts"),
    AnalysisColumn("low", "lowest threshold at which no verdict changes", "of the metric", "num"),
    AnalysisColumn("below", "verdicts that change if the threshold is below `low`"),
    AnalysisColumn("high", "highest threshold at which no verdict changes", "of the metric", "num"),
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
    *COLUMNS[:2],  # the rule and the metric
    METHOD,
    SETTING,
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
                "same": AnalysisCell(text=_same(low, high, limit.threshold)),
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
    starts = ((_start(unit, threshold, side), position, unit) for position, unit in enumerate(judged_units))
    for start, index, unit in sorted(starts, key=lambda one: one[:2]):
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


def _same(low: ThresholdEdge | None, high: ThresholdEdge | None, threshold: float) -> str:
    """Return the range of a threshold as text: `from 1.38 up`, `above 1.38 and below 3`.

    The ends are rounded inwards, because beyond an end a verdict differs; but not past the threshold of the edition, which gives
    these verdicts itself.
    """
    parts = []
    if low:
        end = min(_rounded(low.value, ROUND_CEILING), threshold)
        included = low.included or end == threshold
        parts.append(f"{'from' if included else 'above'} {end:g}{' up' if included and not high else ''}")
    if high:
        end = max(_rounded(high.value, ROUND_FLOOR), threshold)
        parts.append(f"{'up to' if high.included or end == threshold else 'below'} {end:g}")
    return " and ".join(parts) or "any"


def _rounded(value: float, rounding: str) -> float:
    """Return a finite number with three significant digits."""
    return float(Context(prec=3, rounding=rounding).create_decimal(repr(value)))


def _side(name: str, changes_name: str, threshold_edge: ThresholdEdge | None, absent: str) -> dict[str, AnalysisCell]:
    if threshold_edge is None:
        return {name: _end(None, absent, name), changes_name: AnalysisCell(text="nothing")}
    change_texts = _changed(threshold_edge)
    truncation_notes = [f"and {len(change_texts) - SHOWN} more"] if len(change_texts) > SHOWN else []
    return {
        name: _end(threshold_edge, absent, name),
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
    ids = tuple(change.run.record.run_id for change in threshold_edge.changes)
    return AnalysisCell(Reading(threshold_edge.value), run_ids=ids)


def _observed(name: str, quantity: str, judged_units: Iterable[JudgedUnit]) -> list[dict[str, AnalysisCell]]:
    rows, shared_cells = [], {"rule": AnalysisCell(text=name), "quantity": AnalysisCell(text=quantity)}
    for unit in judged_units:
        for method in {id(method): method for method in unit.methods}.values():
            runs = [run for run, other in zip(unit.runs, unit.methods, strict=True) if other is method]
            ids = tuple(run.record.run_id for run in runs)
            labels = dict.fromkeys(run.verdict.label for run in runs)
            cells = {
                **shared_cells,
                METHOD.name: AnalysisCell(text=method.label),
                SETTING.name: method.cells[SETTING.name],
                "seeds": AnalysisCell(text=", ".join(dict.fromkeys(str(run.record.spec.seed) for run in runs))),
                "verdict": AnalysisCell(text=", ".join(labels)),
            }
            rows += [{**cells, "value": AnalysisCell(reading, run_ids=ids)} for reading in unit.shown(runs[0])]
    return rows


@dataclass(frozen=True)
class RuleLimit:
    """One threshold of an edition, which the user overrides by its name, for example `D1` or `D2.gain`."""

    name: str
    rule: Rule
    condition: Condition

    @property
    def threshold(self) -> float:
        return self.condition.threshold


@dataclass(frozen=True)
class VerdictChange:
    """A run whose verdict label differs between the threshold of the edition and another threshold."""

    method: MethodRuns
    run: RunAudit
    before: str
    after: str


@dataclass(frozen=True)
class ThresholdEdge:
    """One end of a range of thresholds. No verdict changes within this range.

    Args:
        value: the observed value at this end of the range.
        included: whether `value` itself is in the range.
        changes: verdicts that change if the threshold is beyond this end of the range.
    """

    value: float
    included: bool
    changes: tuple[VerdictChange, ...]


@dataclass(frozen=True)
class JudgedUnit:
    """Runs that a rule judges together.

    If the rule judges the mean over seeds, a unit is all runs of a setting, because their methods are decided together. Otherwise,
    a unit is one run. `methods` contains the method of each run. The runs are compared with the controls in `control_records`,
    whose keys are run ids. `limit` is the threshold that is changed.
    """

    methods: tuple[MethodRuns, ...]
    runs: tuple[RunAudit, ...]
    control_records: Mapping[str, RunRecord]
    limit: RuleLimit
    edition: Edition
    waivers: tuple[Waiver, ...]
    _kept: dict[float, tuple[Verdict, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def shown(self, first: RunAudit) -> tuple[Reading, ...]:
        """Return the values of a run that the rule compares with the threshold, or N/A with the reason."""
        rule = self.limit.rule
        if rule.judge == CREDIT:
            return (Reading(None, NOT_WORKED_OUT),)
        if rule.judge != LIMIT:
            finding = self._finding(first)
            return (finding.observed, *(Reading(end) for end in finding.interval or ()))
        condition = self.limit.condition
        reading = take(condition.quantity, condition.take, first.record.measurements)[0]
        if not rule.reference or condition.quantity != rule.quantity:
            return (reading,)
        key = (first.record.spec.setting.identity, first.record.spec.seed)
        last_block = last_block_controls(self.control_records.values()).get(key)
        case = RunWithControl(first.record, self.control_records.get(first.frozen_run_id), last_block=last_block)
        reference = case.reference(rule.reference).reading
        for operand in (reading, reference):
            if operand.value is None:
                return (operand,)
        return (Reading(HEADLINES[REFERENCE_METRICS[rule.fires]].difference(reading.value, reference.value)),)

    @cached_property
    def values(self) -> tuple[float, ...]:
        """All thresholds at which a verdict can change, sorted."""
        found = {reading.value for run in self.runs for reading in self.shown(run) if reading.value is not None}
        if self.limit.rule.judge == SEEDS:
            firsts = {id(method): self._finding(run) for run, method in zip(self.runs, self.methods, strict=True)}
            compared = [finding for finding in firsts.values() if finding.interval and not finding.stated]
            for finding, count in itertools.product(compared, range(2, len(compared) + 1)):
                df, confidence = finding.df or finding.seeds - 1, finding.confidence or CONFIDENCE
                found.update(simultaneous_ends(finding.interval, df, confidence, count))
        return tuple(sorted(found))

    def verdicts(self, threshold: float) -> tuple[Verdict, ...]:
        """Return one verdict per run at another threshold.

        The result is cached, because the search for changed labels and the search for changed outcomes use the same verdicts.
        """
        if threshold in self._kept:
            return self._kept[threshold]
        single_rule_edition = dataclasses.replace(self.edition, rules=(self.limit.rule,), fail_if=(), strict=False)
        edition = overridden(single_rule_edition, {self.limit.name: threshold})
        judged = zip(self.runs, self._cases, strict=False)  # the controls come last and need no verdict
        # the findings of all other rules stay unchanged
        self._kept[threshold] = tuple(self._verdict(run, judge_rule(edition.rules[0], *case)) for run, case in judged)
        return self._kept[threshold]

    @cached_property
    def _cases(self) -> list[tuple[RunWithControl, SeedGroup]]:
        """The runs and controls in their groups, whose margins do not depend on the threshold."""
        # the verdict does not depend on values by epoch
        records = [dataclasses.replace(run.record, trajectory={}) for run in self.runs]
        interim_analyses = {seeds_key(run.record.spec): self._finding(run).look for run in self.runs}
        return grouped_cases((*records, *self.control_records.values()), interim_analyses)

    def _finding(self, run: RunAudit) -> Finding:
        return next(finding for finding in run.findings if finding.rule == self.limit.rule.code)

    def _verdict(self, run: RunAudit, finding: Finding) -> Verdict:
        waived_finding = waived(finding, run.record, self.waivers)
        findings = [waived_finding if other.rule == finding.rule else other for other in run.findings]
        return verdict(run.record, findings, self.edition)


def limits(edition: Edition) -> Iterator[RuleLimit]:
    """Yield every threshold of the edition that can be overridden, rule by rule."""
    for rule in edition.rules:
        first, *further = rule.conditions
        others = {condition.quantity: condition for condition in further if condition.quantity != rule.quantity}
        yield RuleLimit(f"{rule.code}.{rule.quantity}" if further else rule.code, rule, first)
        yield from (RuleLimit(f"{rule.code}.{quantity}", rule, condition) for quantity, condition in others.items())


def units(report: AuditReport, edition: Edition, limit: RuleLimit) -> tuple[JudgedUnit, ...]:
    """Group the runs of a report, without controls, into units that the rule of the limit judges together."""
    runs = [(method, run) for method in trained(report) for run in method.runs]
    parts: dict[str, list[tuple[MethodRuns, RunAudit]]] = {}
    for method, run in runs:
        spec = run.record.spec
        kinds = {LIMIT: run.record.run_id, SEEDS: spec.setting.identity}
        parts.setdefault(kinds.get(limit.rule.judge, method.label + spec.setting.identity), []).append((method, run))
    records = {run.record.run_id: run.record for run in report.runs}
    controls: dict[str, list[str]] = {}
    for record in records.values():
        if record.spec.control != "none":
            controls.setdefault(record.spec.setting.identity, []).append(record.run_id)
    judged_units = []
    for part in parts.values():
        members, judged = zip(*part, strict=True)
        ids = {finding.reference_run_id for run in judged for finding in run.findings}
        ids |= {run.frozen_run_id for run in judged}
        if limit.rule.judge == SEEDS:
            ids |= set(controls.get(judged[0].record.spec.setting.identity, ()))
        control_records = {run_id: records[run_id] for run_id in sorted(ids & records.keys())}
        judged_units.append(JudgedUnit(members, judged, control_records, limit, edition, report.waivers))
    return tuple(judged_units)


def edge(unit: JudgedUnit, start: float, side: int, label: bool) -> ThresholdEdge | None:
    """Return the threshold nearest to `start` at which a verdict of the unit changes.

    The result is None if no verdict changes on the searched side.

    Args:
        unit: runs that the rule of the threshold judges together.
        start: threshold of the edition.
        side: −1 to search below `start`, +1 to search above `start`.
        label: if true, any change of the verdict's label counts, including a change of the flags in the label. If false, only a
            change of the outcome (pass, warn, fail, incomplete) counts.
    """
    if not unit.limit.rule.gating:  # the verdict does not depend on this rule
        return None
    on_this_side = [value for value in unit.values if side * value >= side * start]
    for value in sorted(on_this_side, key=lambda one: side * one):
        for threshold, included in ((value, False), (math.nextafter(value, side * math.inf), True)):
            changes = _changes(unit, threshold, label) if threshold != start and math.isfinite(threshold) else ()
            if changes:
                return ThresholdEdge(value, included, changes)
    return None


def _changes(unit: JudgedUnit, threshold: float, label: bool) -> tuple[VerdictChange, ...]:
    return tuple(
        VerdictChange(method, run, run.verdict.label, new_verdict.label)
        for method, run, new_verdict in zip(unit.methods, unit.runs, unit.verdicts(threshold), strict=True)
        if (run.verdict.label != new_verdict.label if label else run.verdict.outcome != new_verdict.outcome)
    )


PLUGIN = Analyser(
    name="sensitivity",
    title="Threshold sensitivity",
    question="How far can each threshold be changed before the verdict of a run changes?",
    source="arXiv 2606.21126, which gives such a range for D1 and for D2",
    answer=answer,
    rank=1,
    figure="fa_registry.reporting.figures.analyses.sensitivity",
)
