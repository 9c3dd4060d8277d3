"""Figure of the accuracy margin over the frozen control for each method and network."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import TICK, Canvas, dot, in_order, remark, row_axis, row_width, value_axis
from fa_registry.reporting.figures.frames import entry, in_rows, variant

ROW, BOTTOM, LEAST = 0.24, 0.5, 0.6  # inches
MARKERS = "os^DvP*X"


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return the mean margin over the frozen control for each method and setting.

    The margin and its 95 % interval over seeds are in percentage points.
    """
    return variant(entry(row, "margin", "architecture", "verdict") for row in analysis.rows)


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw the margin over the frozen control with its interval, one row per method and network."""
    networks = list(dict.fromkeys(frame["architecture"]))
    styles = {
        name: (colour, MARKERS[index % len(MARKERS)])
        for index, (name, (colour, _)) in enumerate(in_order(networks).items())
    }
    top = canvas.legend([dot(name, *style) for name, style in styles.items()]) + 0.1
    frame, rows, left_out = in_rows(frame)
    canvas.resize(BOTTOM + max(LEAST, ROW * len(rows)) + top)
    axes = canvas.figure.subplots()
    value_axis(axes, [*frame["value"].dropna(), 0.0])
    axes.axvline(0, color=TICK, linewidth=1.0)
    for network, runs in frame.groupby("architecture", sort=False):
        colour, marker = styles[network]
        levels = runs["row"].map(rows.index)
        axes.plot(runs[["low", "high"]].T, [levels, levels], color=colour, linewidth=1.3, alpha=0.7)
        axes.plot(runs["value"], levels, marker, color=colour, markersize=5, zorder=3)
    for row in frame.loc[frame["value"].isna(), "row"]:
        remark(axes, 0.01, rows.index(row), "N/A", ha="left", transform=axes.get_yaxis_transform())
    axes.set_xlabel("accuracy above the frozen control, percentage points")
    row_axis(axes, rows, left_out)
    canvas.place(row_width(rows), 0.2, BOTTOM, top)
