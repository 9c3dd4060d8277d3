"""One panel a rule: a dot a run at the epoch in which it first fires, a hollow one in the lane of those that never do."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import _canvas
from fa_registry.reporting.figures.style import INK, PALETTE, TICK

ROW, BOTTOM, GAP = 0.24, 0.45, 0.45  # inches
LABELS = {"fires": "first fire of a run", "never": "never fires", "N/A": "cannot be said"}
LEGEND = [*LABELS.values()]
STATES = {"fires": ("o", PALETTE[1]), "never": ("o", "white"), "N/A": ("x", TICK)}


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """One row a run and rule. state: fires (at `epoch`), never, or N/A, both with their reason."""
    rows = [
        (
            row["method"].text,
            row["setting"].text,
            row["rule"].text,
            row["seed"].reading.value,
            row["epoch"].text if row["epoch"].reading.value is None else "fires",
            row["epoch"].reading.value,
            row["epoch"].reading.reason,
            row["trained"].reading.value,
        )
        for row in analysis.table("runs").rows
    ]
    columns = ["method", "setting", "rule", "seed", "state", "epoch", "reason", "trained"]
    return pd.DataFrame(rows, columns=columns).astype({"epoch": float, "trained": float})


def height(frame: pd.DataFrame) -> float:
    rows = len(_canvas.rows_of(_canvas.named(frame)))
    return _canvas.legend_height(LEGEND) + BOTTOM + (ROW * rows + GAP) * frame["rule"].nunique()


def draw(figure: Figure, frame: pd.DataFrame) -> None:
    """frame: a row a run and rule: the epoch of the first fire, nan where there is none, and how long the run was trained."""
    frame = _canvas.named(frame)
    rows, rules = _canvas.rows_of(frame), list(dict.fromkeys(frame["rule"]))
    last = max(frame[["epoch", "trained"]].max().max(), 1.0)
    panels = figure.subplots(len(rules), 1, squeeze=False, sharex=True)[:, 0]
    for axes, rule in zip(panels, rules, strict=True):
        _panel(axes, frame[(frame["rule"] == rule) & frame["row"].isin(rows)], rows, last)
        axes.set_title(rule, loc="left", fontsize=9, pad=3)
    panels[-1].set_xlabel("epoch of first fire (0 = initialisation)")
    _canvas.row_axis(panels[-1], rows, frame["row"].nunique() - len(rows))
    handles = [_canvas.dot(LABELS[state], INK, marker, fill) for state, (marker, fill) in STATES.items()]
    _canvas.legend(figure, handles)
    top = _canvas.legend_height(LEGEND) + 0.2
    _canvas.place(figure, _canvas.row_width(rows), 0.2, BOTTOM, top, hspace=GAP / (ROW * len(rows)))


def _panel(axes: Axes, frame: pd.DataFrame, rows: Sequence[str], last: float) -> None:
    lanes = {"never": last * 1.13, "N/A": last * 1.31}
    axes.axvspan(last * 1.05, last * 1.40, color=_canvas.PANE, linewidth=0, zorder=0)
    seeds = frame.groupby(["row", "state"], sort=False)  # side by side where they meet
    count, place = seeds["epoch"].transform("size"), seeds.cumcount()
    level = frame["row"].map(rows.index) + 0.6 * (place - (count - 1) / 2) / count.clip(lower=3)
    for state, runs in frame.groupby("state", sort=False):
        marker, fill = STATES[state]
        epochs = runs["epoch"] if state == "fires" else [lanes[state]] * len(runs)
        look = {"markersize": 4.5, "markeredgecolor": INK, "markerfacecolor": fill, "zorder": 3}
        axes.plot(epochs, level[runs.index], marker, **look)
    axes.set_xlim(-0.02 * last, last * 1.40)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    ticks = [tick for tick in axes.get_xticks() if 0 <= tick <= last]
    axes.set_xticks([*ticks, lanes["never"], lanes["N/A"]], [*(f"{tick:g}" for tick in ticks), "never", "N/A"])
    _canvas.row_axis(axes, rows)


DRAWING = _canvas.Drawing(numbers, height, draw)
