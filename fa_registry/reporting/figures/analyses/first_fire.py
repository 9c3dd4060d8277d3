"""Figure of the epoch at which a rule first fires: one panel per rule.

Each dot is a run. A run in which the rule never fires is a hollow dot to the right of the epochs.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import INK, PALETTE, PANE, TICK, Canvas, dot, row_axis, row_width, whole_axis
from fa_registry.reporting.figures.frames import entry, in_rows, variant

ROW, BOTTOM, GAP = 0.24, 0.45, 0.45  # inches
STATES = {  # state: label, marker, fill
    "fires": ("first fire of a run", "o", PALETTE[1]),
    "never": ("never fires", "o", "white"),
    "N/A": ("not determined", "x", TICK),
}


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return one row per run and rule.

    Column `state` is `fires`, `never` or `N/A`. Column `epoch` is the epoch at which the rule first fires, or NaN if the state is
    not `fires`.
    """
    rows = analysis.table("runs").rows
    frame = variant(entry(row, "epoch", "rule", "seed", "trained") for row in rows)
    frame = frame.rename(columns={"value": "epoch", "words": "state"})
    return frame.assign(state=frame["state"].where(frame["epoch"].isna(), "fires")) if len(frame) else frame


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw the epoch at which each rule first fires; column `trained` is the number of epochs of the run."""
    rules = list(dict.fromkeys(frame["rule"]))
    last = max(frame[["epoch", "trained"]].max().max(), 1.0)
    frame, rows, left_out = in_rows(frame)
    head = canvas.legend([dot(text, INK, marker, fill) for text, marker, fill in STATES.values()])
    canvas.resize(head + BOTTOM + (ROW * len(rows) + GAP) * len(rules))
    panels = canvas.figure.subplots(len(rules), 1, squeeze=False, sharex=True)[:, 0]
    for axes, rule in zip(panels, rules, strict=True):
        _panel(axes, frame[frame["rule"] == rule], rows, last)
        axes.set_title(rule, fontsize=9)
    panels[-1].set_xlabel("epoch of first fire (0 = initialisation)")
    row_axis(panels[-1], rows, left_out)
    canvas.place(row_width(rows), 0.2, BOTTOM, head + 0.2, hspace=GAP / (ROW * len(rows)))


def _panel(axes: Axes, frame: pd.DataFrame, rows: Sequence[str], last: float) -> None:
    lanes = {"never": last * 1.13, "N/A": last * 1.31}
    axes.axvspan(last * 1.05, last * 1.40, color=PANE, linewidth=0, zorder=0)
    seeds = frame.groupby(["row", "state"], sort=False)  # dots that would overlap are drawn next to each other
    count, position = seeds["epoch"].transform("size"), seeds.cumcount()
    level = frame["row"].map(rows.index) + 0.6 * (position - (count - 1) / 2) / count.clip(lower=3)
    for state, runs in frame.groupby("state", sort=False):
        _, marker, fill = STATES[state]
        epochs = runs["epoch"] if state == "fires" else [lanes[state]] * len(runs)
        style = {"markersize": 4.5, "markeredgecolor": INK, "markerfacecolor": fill, "zorder": 3}
        axes.plot(epochs, level[runs.index], marker, **style)
    axes.set_xlim(-0.02 * last, last * 1.40)
    whole_axis(axes, "")
    ticks = [tick for tick in axes.get_xticks() if 0 <= tick <= last]
    axes.set_xticks([*ticks, lanes["never"], lanes["N/A"]], [*(f"{tick:g}" for tick in ticks), "never", "N/A"])
    row_axis(axes, rows)
