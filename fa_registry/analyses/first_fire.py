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
from fa_registry.protocol.reductions import trajectory
from fa_registry.protocol.replay_summary import series_label
from fa_registry.protocol.rule_evaluation import NOT_FOLLOWED, decide, first_fire
from fa_registry.protocol.rules import Edition, Rule
from fa_registry.records import AuditReport, Reading, RunAudit

RULE = AnalysisColumn("rule", "rule of the edition")
AT_THE_END = {
    LIMIT: "by comparison with the frozen control",
    SEEDS: "by comparison with the frozen controls over seeds",
    CREDIT: "by comparison with newly drawn feedback",
}
UNIT = "epoch (0 = initialisation)"
COLUMNS = (
    METHOD,
    SETTING,
    RULE,
    RUNS,
    AnalysisColumn("fired", "runs in which the rule fires", "runs", "count"),
    AnalysisColumn("never", "runs in which the rule never fires", "runs", "count"),
    AnalysisColumn("unknown", "runs for which it is unknown whether the rule fires", "runs", "count"),
    AnalysisColumn("earliest", "earliest first epoch at which the rule fires, over the runs", UNIT, "count"),
    AnalysisColumn(
        "median",
        "median over the runs of the first epoch at which the rule fires; a run in which the rule never fires counts as the latest",
        UNIT,
        "count",
    ),
    AnalysisColumn("latest", "latest first epoch at which the rule fires, over the runs", UNIT, "count"),
    AnalysisColumn("epochs", "first epoch at which the rule fires, for each seed"),
)
BY_RUN = (
    METHOD,
    SETTING,
    SEED,
    RULE,
    AnalysisColumn("epoch", "first epoch at which the rule fires", UNIT, "count"),
    AnalysisColumn("trained", "recorded epochs", "epochs", "count"),
)


@dataclass(frozen=True)
class Fire:
    """The epoch at which a rule first fires on one run.

    Args:
        epoch: the epoch, or the reason why there is none.
        state: `fires`, `never` or `unknown`.
        open: whether the rule could not be judged at an earlier epoch.
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
        Two tables: one row per rule and method over its seeds, and one row per rule and run.
    """
    methods = trained(report)
    summaries, by_run, remarks = [], [], []
    for rule in edition.rules:
        fires = [[fire(rule, run) for run in method.runs] for method in methods]
        every = [one for several in fires for one in several]
        if every and all(one.state == "unknown" for one in every):
            remarks.append(f"The first fire of rule {rule.code} is not known on any run: {every[0].epoch.reason}")
            continue
        for method, several in zip(methods, fires, strict=True):
            summaries.append(_summary(method, rule, several))
            by_run += [_row(method, rule, one) for one in several]
    tables = (
        AnalysisTable("first-fire", "First epoch at which each rule fires, for each method", COLUMNS, tuple(summaries)),
        AnalysisTable("runs", "First epoch at which each rule fires, for each run", BY_RUN, tuple(by_run), detail=True),
    )
    label = series_label([run.record.integrity for method in methods for run in method.runs])
    remarks += [f"The first fires are computed from the values at each epoch, {label}"] if label and methods else []
    return AnalysisResult(tables, tuple(remarks))


def fire(rule: Rule, run: RunAudit) -> Fire:
    """Return the epoch at which a rule first fires on a run.

    If there is no such epoch, the result states whether the rule never fires, or why this is unknown.
    """
    if rule.judge != LIMIT or rule.reference:
        how = AT_THE_END.get(rule.judge, "by another rule")
        return Fire(run, Reading(None, f"the rule is judged only at the end of a run, {how}"), "unknown")
    lines = [run.record.trajectory.get(trajectory(one.quantity, one.take)) for one in rule.conditions]
    if not lines[0]:
        return Fire(run, Reading(None, f"{rule.quantity} was not recorded at each epoch"), "unknown")
    epochs = zip(*(repeat(NOT_FOLLOWED) if line is None else line for line in lines), strict=False)
    undecided = {index: reason for index, readings in enumerate(epochs) if (reason := _undecided(rule, readings))}
    epoch = first_fire(rule, run.record)
    if epoch is not None:
        return Fire(run, Reading(float(epoch)), "fires", open=any(index < epoch for index in undecided))
    if undecided:
        share = f"{len(undecided)} of {len(lines[0])} epochs"
        return Fire(run, Reading(None, f"not known for {share}: {next(iter(undecided.values()))}"), "unknown")
    return Fire(run, Reading(None, f"never in {len(lines[0]) - 1} epochs"), "never")


def _undecided(rule: Rule, readings: Sequence[Reading]) -> str:
    decision = decide(rule, readings)
    return decision.reason if decision.fires is None else ""


def _summary(method: MethodRuns, rule: Rule, fires: Sequence[Fire]) -> dict[str, AnalysisCell]:
    states = {state: [one for one in fires if one.state == state] for state in ("fires", "never", "unknown")}
    counts = {
        name: AnalysisCell(Reading(float(len(states[state]))), run_ids=_ids(states[state]))
        for name, state in (("fired", "fires"), ("never", "never"), ("unknown", "unknown"))
    }
    text = ", ".join(one.text for one in fires)
    if len({one.text for one in fires}) == 1 and len(fires) > 1 and not states["fires"]:
        text = f"{fires[0].text}, {len(fires)} of {len(fires)}"
    ranks = {"earliest": 0.0, "median": 0.5, "latest": 1.0}
    return {
        **method.cells,
        "rule": AnalysisCell(text=rule.code),
        **counts,
        **{name: _order(fires, place) for name, place in ranks.items()},
        "epochs": AnalysisCell(text=text),
    }


def _order(fires: Sequence[Fire], place: float) -> AnalysisCell:
    """Return a quantile of the epochs (0: first, 1: last); "never" counts as last."""
    unknown = [one for one in fires if one.state == "unknown"]
    if unknown:
        return AnalysisCell(unknown[0].epoch, run_ids=_ids(unknown))
    ordered = sorted(fires, key=lambda one: (one.state == "never", one.epoch.value or 0.0))
    middle = place * (len(ordered) - 1)
    pair = (ordered[int(middle)], ordered[int(middle + 0.5)])
    late = [one for one in pair if one.state == "never"]
    if late:
        return AnalysisCell(late[0].epoch, text="never", run_ids=_ids(late))
    return AnalysisCell(Reading((pair[0].epoch.value + pair[1].epoch.value) / 2), run_ids=_ids(pair))


def _row(method: MethodRuns, rule: Rule, one: Fire) -> dict[str, AnalysisCell]:
    lines = one.run.record.trajectory.values()
    followed = max((len(line) for line in lines), default=0) - 1
    count = Reading(float(followed)) if followed >= 0 else Reading(None, "no metric was recorded at each epoch")
    ids = (one.run.record.run_id,)
    return {
        METHOD.name: method.cells[METHOD.name],
        SETTING.name: method.cells[SETTING.name],
        SEED.name: AnalysisCell(Reading(float(one.run.record.spec.seed)), run_ids=ids),
        "rule": AnalysisCell(text=rule.code),
        "epoch": AnalysisCell(one.epoch, text="" if one.text.isdigit() else one.text, run_ids=ids),
        "trained": AnalysisCell(count, run_ids=ids),
    }


def _ids(fires: Sequence[Fire]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.run.record.run_id for one in fires))


PLUGIN = Analyser(
    name="first-fire",
    title="First fire",
    question="How early in training does each rule fire, and on which methods?",
    source="arXiv 2606.21126, table of first-fire epochs of D1 and D2",
    answer=answer,
    rank=4,
    silence=partial(without_rows, why="no rule can be judged at each epoch"),
)
