"""One panel a quantity: from the smallest to the largest value of every method, by state, with the threshold drawn."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_registry.analyses.base import Analysis
from fa_registry.analyses.ranges import WATCHED
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import _canvas
from fa_registry.reporting.figures.style import LIMIT, PALETTE
from fa_registry.reporting.text.filters import compact

STATES = {"healthy": (PALETTE[0], "o"), "failing": (PALETTE[1], "s"), "unknown": (_canvas.MUTED, "^")}
LEGEND = [*STATES, "threshold of the edition"]
NEAR_ONE = {watched.quantity for watched in WATCHED if watched.near_one}
ROW, BOTTOM, GAP = 0.19, 0.35, 0.62  # inches


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """One row a quantity and method; threshold is NaN where no rule looks at the quantity. Fidelity as its distance from 1."""
    thresholds = {row["quantity"].text: row["threshold"].reading.value for row in analysis.rows}
    words = {row["quantity"].text: row["words"].text for row in analysis.rows}
    rows = []
    for row in analysis.table("methods").rows:
        quantity = row["quantity"].text
        values = [row["low"].reading.value, row["high"].reading.value, thresholds[quantity]]
        if quantity in NEAR_ONE:
            values = [None if value is None else 1 - value for value in values]
            values[:2] = values[1::-1]
        label = f"1 − {words[quantity]}" if quantity in NEAR_ONE else words[quantity]
        texts = (row["method"].text, row["setting"].text, row["state"].text, row["low"].reading.reason)
        rows.append((quantity, label, *texts, *values))
    columns = ["quantity", "words", "method", "setting", "state", "reason", "low", "high", "threshold"]
    return pd.DataFrame(rows, columns=columns).astype({"low": float, "high": float, "threshold": float})


def height(frame: pd.DataFrame) -> float:
    rows = len(_canvas.rows_of(_canvas.named(frame)))
    return _canvas.legend_height(LEGEND) + BOTTOM + (ROW * rows + GAP) * frame["quantity"].nunique()


def draw(figure: Figure, frame: pd.DataFrame) -> None:
    frame = _canvas.named(frame)
    rows, quantities = _canvas.rows_of(frame), list(dict.fromkeys(frame["quantity"]))
    panels = figure.subplots(len(quantities), 1, squeeze=False)[:, 0]
    for axes, quantity in zip(panels, quantities, strict=True):
        _panel(axes, frame[(frame["quantity"] == quantity) & frame["row"].isin(rows)], rows)
    _canvas.row_axis(panels[-1], rows, frame["row"].nunique() - len(rows))
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4.5, linewidth=2, label=state)
        for state, (colour, marker) in STATES.items()
    ]
    handles.append(Line2D([], [], color=LIMIT, linewidth=1.2, linestyle=(0, (4, 2)), label=LEGEND[-1]))
    _canvas.legend(figure, handles)
    _canvas.place(
        figure,
        _canvas.row_width(rows),
        0.2,
        BOTTOM,
        _canvas.legend_height(LEGEND) + 0.2,
        hspace=GAP / (ROW * len(rows)),
    )


def _panel(axes: Axes, frame: pd.DataFrame, rows: Sequence[str]) -> None:
    threshold = frame["threshold"].iloc[0]
    known = frame.dropna(subset="low")
    _canvas.value_axis(axes, [*known["low"], *known["high"], threshold])
    if threshold == threshold:
        axes.axvline(threshold, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)
    for row, state, low, high in zip(known["row"], known["state"], known["low"], known["high"], strict=True):
        colour, marker = STATES[state]
        axes.plot([low, high], [rows.index(row)] * 2, color=colour, marker=marker, markersize=4, linewidth=2, zorder=4)
    _canvas.row_axis(axes, rows)
    limit = (
        f", threshold {compact(float(f'{threshold:.6g}'))}"
        if threshold == threshold
        else ", judged by no rule of this edition"
    )
    axes.set_title(frame["words"].iloc[0] + limit, loc="left", fontsize=8.5, pad=3)


DRAWING = _canvas.Drawing(numbers, height, draw)
