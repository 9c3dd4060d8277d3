"""The numbers behind the trajectory figures: one DataFrame a panel, and the same numbers as a page's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from fa_registry.protocol.grouping import Group
from fa_registry.records import Finding, Reading, RunAudit
from fa_registry.reporting.parts import Number

COLUMNS = ("method", "control", "seed", "run_id", "epoch", "value", "reason")
SHOWN_EPOCHS = 9  # a page's table holds this many; audit.json holds all


@dataclass(frozen=True)
class Panel:
    """One figure. quantity: the trajectory's key; judged: the site quantity whose rule draws its limit here.

    axis: the quantity in words; label: the same for matplotlib's formula parser.
    """

    quantity: str
    title: str
    axis: str
    label: str
    kind: str
    log: bool
    judged: str = ""


PANELS = (
    Panel("h_L", "Scale of the stream", "median ‖h_L‖₂", r"median $\Vert h_L \Vert_2$", "num", log=True),
    Panel(
        "growth_max",
        "Largest growth per block",
        "max over l of ‖h_l‖ / ‖h_l−1‖",
        r"$\max_l\ \Vert h_l \Vert / \Vert h_{l-1} \Vert$",
        "num",
        log=True,
        judged="growth",
    ),
    Panel(
        "g_norm_mean_ce_L",
        "Reference gradient",
        "‖g_L‖ of the mean CE",
        r"$\Vert g_L \Vert_2$ of the mean CE",
        "sci",
        log=True,
        judged="g_norm_mean_ce",
    ),
    Panel(
        "g_L",
        "Reference gradient",
        "‖g_L‖ per sample",
        r"$\Vert g_L \Vert_2$ per sample",
        "sci",
        log=True,
        judged="g_norm",
    ),
    Panel(
        "accuracy",
        "Test accuracy",
        "share of the test set classified correctly",
        "accuracy, whole test set",
        "pct",
        log=False,
    ),
)


def panels(groups: Sequence[Group]) -> tuple[Panel, ...]:
    """The panels these runs have numbers for. The mean-CE gradient stands in for the per-sample one."""
    known = {name for group in groups for run in group.runs for name, row in run.record.trajectory.items() if row}
    hidden = {"g_L"} if "g_norm_mean_ce_L" in known else set()
    return tuple(panel for panel in PANELS if panel.quantity in known - hidden)


def trajectory_numbers(panel: Panel, groups: Sequence[Group]) -> pd.DataFrame:
    """One row a run and epoch; `value` is NaN exactly where `reason` says why. Units: the panel's axis."""
    rows = [
        (group.method, group.control, run.record.spec.seed, run.record.run_id, epoch, reading.value, reading.reason)
        for group in groups
        for run in group.runs
        for epoch, reading in enumerate(run.record.trajectory.get(panel.quantity, ()))
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"value": float, "epoch": int, "seed": int})


def frozen_numbers(groups: Sequence[Group]) -> pd.DataFrame:
    """The frozen controls' final test accuracy, one row a seed: the band of the accuracy figure."""
    rows = [
        (run.record.spec.seed, run.record.run_id, reading.value)
        for group in groups
        for run in group.runs
        if run.record.spec.control == "frozen"
        and (reading := run.record.measurements.scalars.get("accuracy", Reading(None, "not measured"))).value
        is not None
    ]
    return pd.DataFrame(rows, columns=["seed", "run_id", "accuracy"]).astype({"accuracy": float})


def limit(panel: Panel, groups: Sequence[Group]) -> tuple[str, float] | None:
    """(rule, threshold) of the rule that judges this panel's quantity, from its findings; None where none does."""
    for finding in _findings(groups):
        if panel.judged and finding.quantity == panel.judged and finding.threshold is not None:
            return finding.rule, finding.threshold
    return None


def table_epochs(frame: pd.DataFrame) -> tuple[int, ...]:
    """At most SHOWN_EPOCHS epochs, evenly spread, first and last included."""
    last = int(frame["epoch"].max()) if len(frame) else 0
    steps = min(last, SHOWN_EPOCHS - 1)
    return tuple(dict.fromkeys(round(index * last / steps) for index in range(steps + 1))) if steps else (0,)


def table_rows(
    panel: Panel, groups: Sequence[Group], epochs: Sequence[int]
) -> tuple[tuple[str, int, tuple[Number, ...]], ...]:
    """(method, seed, one number an epoch) for every run."""
    return tuple(
        (group.method, run.record.spec.seed, tuple(_at(panel, run, epoch) for epoch in epochs))
        for group in groups
        for run in group.runs
        if run.record.trajectory.get(panel.quantity)
    )


def _at(panel: Panel, run: RunAudit, epoch: int) -> Number:
    row = run.record.trajectory[panel.quantity]
    reading = row[epoch] if epoch < len(row) else Reading(None, "the run ended before this epoch")
    return Number(reading, panel.kind, (run.record.run_id,))


def _findings(groups: Sequence[Group]) -> Iterable[Finding]:
    return (finding for group in groups for run in group.runs for finding in run.findings)
