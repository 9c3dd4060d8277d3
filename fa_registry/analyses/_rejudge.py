"""Functions that judge runs again with one changed threshold.

The functions find the thresholds at which verdicts change.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fa_registry.analyses._methods import MethodRuns, trained
from fa_registry.metrics import HEADLINES
from fa_registry.protocol.edition_schema import CREDIT, LIMIT, REFERENCE_METRICS
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.grouping import seeds_key
from fa_registry.protocol.last_block import last_block_controls
from fa_registry.protocol.paired_runs import RunWithControl
from fa_registry.protocol.reductions import take
from fa_registry.protocol.rules import Condition, Edition, Rule, overridden
from fa_registry.protocol.verdict import verdict
from fa_registry.protocol.waivers import waived
from fa_registry.records import AuditReport, Finding, Reading, RunAudit, RunRecord, Verdict, Waiver

NOT_WORKED_OUT = (
    "not computed, because a rule about the distribution of credit excludes some sites before it compares values"
)


@dataclass(frozen=True)
class RuleLimit:
    """One threshold of an edition.

    Args:
        name: name by which the user can override the threshold, for example `D1` or `D2.gain`.
        condition: part of the rule that compares one metric with the threshold.
    """

    name: str
    rule: Rule
    condition: Condition

    @property
    def threshold(self) -> float:
        return self.condition.threshold


@dataclass(frozen=True)
class VerdictChange:
    """A run whose verdict differs between two thresholds.

    Args:
        before: label of the verdict at the threshold of the edition.
        after: label of the verdict at the other threshold.
    """

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

    If the rule judges the mean over seeds, a unit is all runs of a method. Otherwise, a unit is one run.

    Args:
        `control_records`: mapping run id of a control → record of the control. The runs are compared with these controls.
        limit: the threshold that is changed.
    """

    method: MethodRuns
    runs: tuple[RunAudit, ...]
    control_records: Mapping[str, RunRecord]
    limit: RuleLimit
    edition: Edition
    waivers: tuple[Waiver, ...]
    _kept: dict[float, tuple[Verdict, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def shown(self) -> tuple[Reading, ...]:
        """The values that the rule compares with the threshold, or N/A with the reason."""
        rule, first = self.limit.rule, self.runs[0]
        if rule.judge == CREDIT:
            return (Reading(None, NOT_WORKED_OUT),)
        if rule.judge != LIMIT:
            finding = self._finding(first)
            return (finding.observed, *(Reading(end) for end in finding.interval or ()))
        condition = self.limit.condition
        reading = take(condition.quantity, condition.take, first.record.measurements)[0]
        if not rule.reference or condition.quantity != rule.quantity:
            return (reading,)
        last_block = last_block_controls(self.control_records.values()).get(
            (first.record.spec.setting.identity, first.record.spec.seed)
        )
        case = RunWithControl(first.record, self.control_records.get(first.frozen_run_id), last_block=last_block)
        reference = case.reference(rule.reference).reading
        for operand in (reading, reference):
            if operand.value is None:
                return (operand,)
        return (Reading(HEADLINES[REFERENCE_METRICS[rule.fires]].difference(reading.value, reference.value)),)

    @property
    def values(self) -> tuple[float, ...]:
        """All thresholds at which a verdict can change, sorted."""
        return tuple(sorted({reading.value for reading in self.shown if reading.value is not None}))

    def verdicts(self, threshold: float) -> tuple[Verdict, ...]:
        """Return one verdict per run at another threshold.

        The result is cached, because the search for changed labels and the search for changed outcomes use the same verdicts.
        """
        if threshold not in self._kept:
            self._kept[threshold] = self._judged(threshold)
        return self._kept[threshold]

    def _judged(self, threshold: float) -> tuple[Verdict, ...]:
        """Return one verdict per run at another threshold. The findings of all other rules stay unchanged."""
        rule = self.limit.rule
        single_rule_edition = dataclasses.replace(self.edition, rules=(rule,), fail_if=(), strict=False)
        edition = overridden(single_rule_edition, {self.limit.name: threshold})
        records = [
            dataclasses.replace(run.record, trajectory={}) for run in self.runs
        ]  # the verdict does not depend on values by epoch
        interim_analyses = {seeds_key(run.record.spec): self._finding(run).look for run in self.runs}
        audits = judge_all((*records, *self.control_records.values()), edition, interim_analyses=interim_analyses)[
            : len(records)
        ]
        return tuple(self._verdict(run, audit.findings[0]) for run, audit in zip(self.runs, audits, strict=True))

    def _finding(self, run: RunAudit) -> Finding:
        return next(finding for finding in run.findings if finding.rule == self.limit.rule.code)

    def _verdict(self, run: RunAudit, finding: Finding) -> Verdict:
        waived_finding = waived(finding, run.record, self.waivers)
        findings = [waived_finding if other.rule == finding.rule else other for other in run.findings]
        return verdict(run.record, findings, self.edition)


def limits(edition: Edition) -> Iterator[RuleLimit]:
    """Yield every threshold of the edition that can be overridden, rule by rule."""
    for rule in edition.rules:
        first_condition, *further_conditions = rule.conditions
        other_conditions = {
            condition.quantity: condition for condition in further_conditions if condition.quantity != rule.quantity
        }
        yield RuleLimit(f"{rule.code}.{rule.quantity}" if further_conditions else rule.code, rule, first_condition)
        yield from (
            RuleLimit(f"{rule.code}.{quantity}", rule, condition) for quantity, condition in other_conditions.items()
        )


def units(report: AuditReport, edition: Edition, limit: RuleLimit) -> tuple[JudgedUnit, ...]:
    """Group the runs of a report into units that the rule of the threshold judges together.

    Controls are not included, because they are not judged.
    """
    records = {run.record.run_id: run.record for run in report.runs}
    judged_units = []
    for method in trained(report):
        run_groups = [(run,) for run in method.runs] if limit.rule.judge == LIMIT else [method.runs]
        for runs in run_groups:
            references = {finding.reference_run_id for run in runs for finding in run.findings}
            ids = sorted((references | {run.frozen_run_id for run in runs}) & records.keys())
            control_records = {run_id: records[run_id] for run_id in ids}
            judged_units.append(JudgedUnit(method, runs, control_records, limit, edition, report.waivers))
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
        VerdictChange(unit.method, run, run.verdict.label, new_verdict.label)
        for run, new_verdict in zip(unit.runs, unit.verdicts(threshold), strict=True)
        if (run.verdict.label != new_verdict.label if label else run.verdict.outcome != new_verdict.outcome)
    )
