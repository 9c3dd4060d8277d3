"""Accuracy by the number of trained blocks, and beside it by the number of blocks, with the frozen control dashed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import _canvas
from fa_registry.reporting.figures.style import TICK, in_order

PANELS = {"trained": ("last k blocks trained", "k, trained blocks"), "depth": ("all blocks trained", "L, blocks")}
FROZEN = "frozen control"
PANEL, LEFT, BOTTOM, HEAD = 2.3, 0.55, 0.5, 0.3  # inches
COLUMNS = ["panel", "method", "setting", "blocks", "value", "low", "high", "frozen", "reason"]


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """One row a rung (panel trained) or a depth (panel depth; setting: of the shallowest of its scan).

    A method without a rung between its ends is left out where another has one: its line would only be in the way.
    """
    count = Counter((row["method"].text, row["setting"].text) for row in analysis.rows)
    least = 3 if max(count.values(), default=0) > 2 else 1
    rungs = [row for row in analysis.rows if count[row["method"].text, row["setting"].text] >= least]
    rows = [("trained", row, row["setting"].text, row["trained"], None) for row in rungs]
    rows += [
        ("depth", row, row["scan"].text, row["blocks"], row["frozen"].reading.value)
        for row in analysis.table("depth").rows
    ]
    made = [
        (
            panel,
            f"{row['method'].text} by depth" if panel == "depth" else row["method"].text,
            setting,
            blocks.reading.value,
            row["accuracy"].reading.value,
            *(row["accuracy"].interval or (None, None)),
            frozen,
            row["accuracy"].reading.reason,
        )
        for panel, row, setting, blocks, frozen in rows
    ]
    numeric = ["blocks", "value", "low", "high", "frozen"]
    return pd.DataFrame(made, columns=COLUMNS).astype(dict.fromkeys(numeric, float))


def height(frame: pd.DataFrame) -> float:
    rows = _canvas.rows_of(_canvas.named(frame))
    return _canvas.legend_height([*rows, FROZEN]) + HEAD + PANEL + BOTTOM


def draw(figure: Figure, frame: pd.DataFrame) -> None:
    """frame: a row a method and rung: accuracy as a fraction by trained blocks; by blocks in all for the shallow networks."""
    frame = _canvas.named(frame)
    rows = _canvas.rows_of(frame)
    colours = in_order(rows)
    panels = [name for name in PANELS if (frame["panel"] == name).any()]
    top = _canvas.legend_height([*rows, FROZEN]) + HEAD
    for column, name in enumerate(panels):
        title, label = PANELS[name]
        axes = _axes(figure, column, len(panels), top)
        _panel(axes, frame[(frame["panel"] == name) & frame["row"].isin(rows)], colours)
        axes.set_title(title, loc="left", fontsize=8.5, pad=3)
        axes.set_xlabel(label)
    handles = [
        Line2D([], [], color=colour, linestyle=dash, marker="o", markersize=4, label=row.replace("$", "\\$"))
        for row, (colour, dash) in colours.items()
    ]
    handles += [Line2D([], [], color=TICK, linestyle=":", marker="x", label=FROZEN)] * ("depth" in panels)
    _canvas.legend(figure, handles)


def _axes(figure: Figure, column: int, count: int, top: float) -> Axes:
    width, total = figure.get_size_inches()
    wide = (width - 0.1) / count
    place = (
        (column * wide + LEFT) / width,
        BOTTOM / total,
        (wide - LEFT - 0.05) / width,
        (total - top - BOTTOM) / total,
    )
    return figure.add_axes(place)


def _panel(axes: Axes, frame: pd.DataFrame, colours: dict[str, tuple[str, object]]) -> None:
    _canvas.value_axis(axes, [*frame["value"].dropna(), *frame["frozen"].dropna()], "y")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    for place, (row, points) in enumerate(frame.groupby("row", sort=False)):
        colour, dash = colours[row]
        at = points["blocks"] + 0.05 * (place - len(colours) / 2) / max(len(colours), 4)
        axes.plot(at, points["value"], color=colour, linestyle=dash, marker="o", markersize=4, linewidth=1.3)
        axes.plot(at, points["frozen"], color=colour, linestyle=":", marker="x", markersize=4, linewidth=1.0)
        for where, low, high in zip(at, points["low"], points["high"], strict=True):
            if low == low:
                axes.plot([where, where], [low, high], color=colour, linewidth=0.9, alpha=0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))


DRAWING = _canvas.Drawing(numbers, height, draw)
