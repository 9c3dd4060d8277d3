"""Analysis `first-fire`: the epoch at which each rule first fires.

A warning is more useful if it occurs early in the training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat

from fa_registry.analyses._methods import METHOD, RUNS, SEED, SETTING, MethodRuns, trained
from fa_registry.analyses.base import (
    Analyser,
    AnalysisCell,
    AnalysisColumn,
    AnalysisResult,
    AnalysisTable,
    without_rows,
)
from fa_registry.protocol.edition_schema import CREDIT, LIMIT, SEEDS
from fa_registry.protocol.operators import trajectory
from fa_registry.protocol.replay_summary import series_label
from fa_registry.protocol.rule_evaluation import NOT_FOLLOWED, decide, first_fire, inapplicable
from fa_registry.protocol.rules import Edition, Rule
from fa_registry.records import STREAM, AuditReport, Reading, RunAudit

RULE = AnalysisColumn("rule", "code of a rule of the edition")
AT_THE_END = {
    LIMIT: "the rule compares each run with its frozen control",
    SEEDS: "the rule compares the runs with their frozen controls, over seeds",
    CREDIT: "the rule compares the feedback of each run with newly drawn feedback",
}
UNIT = "epoch (0 = initialisation)"
COLUMNS = (
    METHOD,
    SETTING,
    RULE,
    RUNS,
    AnalysisColumn("fired", "number of runs in which the rule fires", "runs", "count"),
    AnalysisColumn("never", "number of runs in which the rule never fires", "runs", "count"),
    AnalysisColumn("unknown", "number of runs for which it is unknown whether the rule fires", "runs", "count"),
    AnalysisColumn("earliest", "earliest epoch at which the rule first fires, over the runs", UNIT, "count"),
    AnalysisColumn(
        "median",
        "median over the runs of the epoch at which the rule first fires; a run in which the rule never fires counts "
        "as later than all other runs",
        UNIT,
        "count",
    ),
    AnalysisColumn("latest", "latest epoch at which the rule first fires, over the runs", UNIT, "count"),
    AnalysisColumn("epochs", "first epoch at which the rule fires, for each seed"),
)
BY_RUN = (
    METHOD,
    SETTING,
    SEED,
    RULE,
    AnalysisColumn("epoch", "first epoch at which the rule fires", UNIT, "count"),
    AnalysisColumn("trained", "number of epochs that the run recorded", "epochs", "count"),
)


@dataclass(frozen=True)
class Fire:
    """The epoch at which a rule first fires on one run.

    Args:
        epoch: the epoch, or the reason why there is no epoch.
        state: `fires`, `never` or `unknown`.
        open: true if the rule could not be judged at some earlier epoch, at which it may have fired.
    """

    run: RunAudit
    epoch: Reading
    state: str
    open: bool = False

    @property
    def text(self) -> str:
        """Text of the epoch: `8`, `≤8` if `open` is true, `never`, or `N/A`."""
        if self.epoch.value is None:
            return "never" if self.state == "never" else "N/A"
        return f"{'≤' if self.open else ''}{self.epoch.value:.0f}"


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Find the epoch at which each rule first fires on each run.

    Returns:
        Two tables: one row per rule and method with a summary over seeds, and one row per rule and run.
    """
    methods = trained(report)
    summaries, by_run, remarks = [], [], []
    for rule in edition.rules:
        fires = [[fire(rule, run) for run in method.runs] for method in methods]
        all_fires = [result for group in fires for result in group]
        if all_fires and all(result.state == "unknown" for result in all_fires):
            remarks.append(
                f"The first epoch at which rule {rule.code} fires is unknown for every run: {all_fires[0].epoch.reason}"
            )
            continue
        for method, method_fires in zip(methods, fires, strict=True):
            summaries.append(_summary(method, rule, method_fires))
            by_run += [_row(method, rule, result) for result in method_fires]
    tables = (
        AnalysisTable("first-fire", "First epoch at which each rule fires, for each method", COLUMNS, tuple(summaries)),
        AnalysisTable("runs", "First epoch at which each rule fires, for each run", BY_RUN, tuple(by_run), detail=True),
    )
    label = series_label([run.record.integrity for method in methods for run in method.runs])
    remarks += [f"First epochs are computed from the values at each epoch, {label}"] if label and methods else []
    return AnalysisResult(tables, tuple(remarks))


def fire(rule: Rule, run: RunAudit) -> Fire:
    """Return the epoch at which a rule first fires on a run.

    If there is no such epoch, the result states that the rule never fires, or why the epoch is unknown.
    """
    if rule.judge != LIMIT or rule.reference:
        comparison = AT_THE_END.get(rule.judge, "the rule compares the run with other results")
        reason = f"{comparison}; this comparison is made only at the end of training"
        return Fire(run, Reading(None, reason), "unknown")
    if reason := inapplicable(rule, run.record.measurements.conventions.get(STREAM)):
        return Fire(run, Reading(None, f"the rule does not apply: {reason}"), "unknown")
    lines = [run.record.trajectory.get(trajectory(condition.quantity, condition.take)) for condition in rule.conditions]
    if not lines[0]:
        return Fire(run, Reading(None, f"{rule.quantity} was not recorded at each epoch"), "unknown")
    epochs = zip(*(repeat(NOT_FOLLOWED) if line is None else line for line in lines), strict=False)
    undecided = {index: reason for index, readings in enumerate(epochs) if (reason := _undecided(rule, readings))}
    epoch = first_fire(rule, run.record)
    if epoch is not None:
        return Fire(run, Reading(float(epoch)), "fires", open=any(index < epoch for index in undecided))
    if undecided:
        share = f"{len(undecided)} of {len(lines[0])} epochs"
        reason = f"it is not known whether the rule fires in {share}: {next(iter(undecided.values()))}"
        return Fire(run, Reading(None, reason), "unknown")
    return Fire(run, Reading(None, f"the rule never fires in {len(lines[0]) - 1} epochs"), "never")


def _undecided(rule: Rule, readings: Sequence[Reading]) -> str:
    decision = decide(rule, readings, at_epoch=True)
    return decision.reason if decision.fires is None else ""


def _summary(method: MethodRuns, rule: Rule, fires: Sequence[Fire]) -> dict[str, AnalysisCell]:
    states = {state: [result for result in fires if result.state == state] for state in ("fires", "never", "unknown")}
    counts = {
        name: AnalysisCell(Reading(float(len(states[state]))), run_ids=_ids(states[state]))
        for name, state in (("fired", "fires"), ("never", "never"), ("unknown", "unknown"))
    }
    text = ", ".join(result.text for result in fires)
    if len({result.text for result in fires}) == 1 and len(fires) > 1 and not states["fires"]:
        text = f"{fires[0].text}, {len(fires)} of {len(fires)}"
    quantiles = {"earliest": 0.0, "median": 0.5, "latest": 1.0}
    return {
        **method.cells,
        "rule": AnalysisCell(text=rule.code),
        **counts,
        **{name: _order(fires, quantile) for name, quantile in quantiles.items()},
        "epochs": AnalysisCell(text=text),
    }


def _order(fires: Sequence[Fire], quantile: float) -> AnalysisCell:
    """Return a quantile of the epochs, from 0 (first epoch) to 1 (last epoch). "never" counts as last."""
    unknown = [result for result in fires if result.state == "unknown"]
    if unknown:
        return AnalysisCell(unknown[0].epoch, run_ids=_ids(unknown))
    ordered = sorted(fires, key=lambda one: (one.state == "never", one.epoch.value or 0.0))
    position = quantile * (len(ordered) - 1)
    pair = (ordered[int(position)], ordered[int(position + 0.5)])
    never_fired = [result for result in pair if result.state == "never"]
    if never_fired:
        return AnalysisCell(never_fired[0].epoch, text="never", run_ids=_ids(never_fired))
    return AnalysisCell(Reading((pair[0].epoch.value + pair[1].epoch.value) / 2), run_ids=_ids(pair))


def _row(method: MethodRuns, rule: Rule, result: Fire) -> dict[str, AnalysisCell]:
    lines = result.run.record.trajectory.values()
    last_epoch = max((len(line) for line in lines), default=0) - 1
    count = Reading(float(last_epoch)) if last_epoch >= 0 else Reading(None, "no metric was recorded at each epoch")
    ids = (result.run.record.run_id,)
    return {
        METHOD.name: method.cells[METHOD.name],
        SETTING.name: method.cells[SETTING.name],
        SEED.name: AnalysisCell(Reading(float(result.run.record.spec.seed)), run_ids=ids),
        "rule": AnalysisCell(text=rule.code),
        "epoch": AnalysisCell(
            result.epoch, text=result.text if result.open or result.epoch.value is None else "", run_ids=ids
        ),
        "trained": AnalysisCell(count, run_ids=ids),
    }


def _ids(fires: Sequence[Fire]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(result.run.record.run_id for result in fires))


PLUGIN = Analyser(
    name="first-fire",
    title="First fire",
    question="How early in training does each rule fire, and on which methods?",
    source="arXiv 2606.21126, table of first-fire epochs of D1 and D2",
    answer=answer,
    rank=5,
    silence=partial(without_rows, reason="no rule can be judged at each epoch"),
    figure="fa_registry.reporting.figures.analyses.first_fire",
)
