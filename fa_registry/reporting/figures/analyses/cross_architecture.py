"""One line a method on a network: its accuracy above the frozen control, with the interval over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import _canvas
from fa_registry.reporting.figures.style import TICK, in_order

ROW, BOTTOM, LEAST = 0.24, 0.5, 0.6  # inches
MARKERS = "os^DvP*X"
COLUMNS = ["method", "architecture", "setting", "value", "low", "high", "verdict", "reason"]


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """One row a method and setting: mean margin over frozen in percentage points with its 95 % interval."""
    rows = [
        (
            row["method"].text,
            row["architecture"].text,
            row["setting"].text,
            row["margin"].reading.value,
            *(row["margin"].interval or (None, None)),
            row["verdict"].text,
            row["margin"].reading.reason,
        )
        for row in analysis.rows
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(["value", "low", "high"], float))


def height(frame: pd.DataFrame) -> float:
    rows = len(_canvas.rows_of(_canvas.named(frame)))
    return BOTTOM + max(LEAST, ROW * rows) + _canvas.legend_height(_networks(frame)) + 0.1


def _networks(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame["architecture"]))


def draw(figure: Figure, frame: pd.DataFrame) -> None:
    """frame: a row a method and network: margin over the frozen control in percentage points, with its interval."""
    frame = _canvas.named(frame)
    rows, networks = _canvas.rows_of(frame), _networks(frame)
    looks = {
        name: (colour, MARKERS[index % len(MARKERS)])
        for index, (name, (colour, _)) in enumerate(in_order(networks).items())
    }
    axes = figure.subplots()
    known = frame[frame["row"].isin(rows)]
    _canvas.value_axis(axes, [*known["value"].dropna(), 0.0])
    axes.axvline(0, color=TICK, linewidth=1.0)
    for row, network, value, low, high in zip(
        known["row"], known["architecture"], known["value"], known["low"], known["high"], strict=True
    ):
        colour, marker = looks[network]
        level = rows.index(row)
        if value != value:
            look = {"ha": "left", "va": "center", "color": TICK, "fontsize": 8}
            axes.text(0.01, level, "N/A", transform=axes.get_yaxis_transform(), **look)
            continue
        if low == low:
            axes.plot([low, high], [level, level], color=colour, linewidth=1.3, alpha=0.7)
        axes.plot(value, level, marker, color=colour, markersize=5, zorder=3)
    axes.set_xlabel("accuracy above the frozen control, percentage points")
    _canvas.row_axis(axes, rows, frame["row"].nunique() - len(rows))
    _canvas.legend(figure, [_canvas.dot(name, *look) for name, look in looks.items()])
    _canvas.place(figure, _canvas.row_width(rows), 0.2, BOTTOM, _canvas.legend_height(networks) + 0.1)


DRAWING = _canvas.Drawing(numbers, height, draw)
