"""Figure with two panels: the eight aggregates of Γ of each method, and Γ at each site."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from fa_registry.analyses.aggregation import NAMES
from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import (
    INK,
    PALETTE,
    TICK,
    Canvas,
    dot,
    remark,
    row_axis,
    row_width,
    value_axis,
    whole_axis,
)
from fa_registry.reporting.figures.frames import entry, in_rows, variant
from fa_registry.reporting.text.filters import MINUS

MARKERS = {"mean_mean": "o", "mean_median": "s", "median_mean": "^", "median_median": "D"}
EXACT, MOST_TEXT = "exact by construction", 7  # maximum number of sites for which the numbers fit
ROW, BOTTOM, LEAST = 0.3, 0.45, 1.0  # inches


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return one row per method and aggregate, and one row per method and site.

    Column `panel` is the name of the aggregate, or `gamma` for a site. Column `counts` shows whether the aggregates include the
    site.
    """
    cells = [(row, name) for row in analysis.rows for name in NAMES]
    cells += [(row, "gamma") for row in analysis.table("sites").rows]
    return variant(entry(row, name, "site", "counts") for row, name in cells)


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw the aggregates of Γ (left panel) and Γ of each site (right panel)."""
    handles = [
        dot("{} over sites of the {} over samples".format(*name.split("_")), INK, marker)
        for name, marker in MARKERS.items()
    ]
    handles += [dot("filled: sites 1..L", INK), dot("hollow: with site 0", INK, fill="white")]
    top = canvas.legend(handles) + 0.1
    frame, rows, left_out = in_rows(frame)
    canvas.resize(BOTTOM + max(LEAST, ROW * len(rows)) + top)
    left, right = canvas.figure.subplots(1, 2, gridspec_kw={"width_ratios": [3, 2]})
    _aggregates(left, frame[frame["panel"] != "gamma"], rows)
    _sites(right, frame[frame["panel"] == "gamma"], rows)
    row_axis(left, rows, left_out)
    row_axis(right, rows)
    right.set_yticks([])
    canvas.place(row_width(rows), 0.15, BOTTOM, top, wspace=0.06)


def _aggregates(axes: Axes, frame: pd.DataFrame, rows: Sequence[str]) -> None:
    with_value = frame.dropna(subset="value")
    value_axis(axes, [*with_value["value"], 0.0])
    axes.axvline(0, color=TICK, linewidth=0.8)
    for row, name, value in zip(with_value["row"], with_value["panel"], with_value["value"], strict=True):
        scope, aggregate = name.split("_", 1)
        shift = 0.18 if scope == "all" else -0.18
        style = {"color": INK, "markerfacecolor": INK if scope == "deep" else "white"}
        axes.plot(value, rows.index(row) + shift, MARKERS[aggregate], markersize=5, **style)
    for row in [row for row in rows if row not in set(with_value["row"])]:
        remark(axes, 0.5, rows.index(row), "N/A", transform=axes.get_yaxis_transform())
    axes.set_xlabel("Γ, mean over seeds")


def _sites(axes: Axes, frame: pd.DataFrame, rows: Sequence[str]) -> None:
    largest = frame.loc[frame["counts"] != EXACT, "value"].abs().max() or 1.0
    count = int(frame["site"].max()) + 1 if len(frame) else 1
    for row, site, counts, value in zip(frame["row"], frame["site"], frame["counts"], frame["value"], strict=True):
        has_value = counts != EXACT and value == value
        strength = abs(value) / largest if has_value else 0.0
        level = rows.index(row)
        if has_value:
            style = {"color": PALETTE[0] if value > 0 else PALETTE[1], "alpha": 0.8 * strength, "linewidth": 0}
            axes.add_patch(Rectangle((site - 0.47, level - 0.42), 0.94, 0.84, **style))
        if count <= MOST_TEXT:
            text = f"{value:.2f}".replace("-", MINUS) if has_value else "exact" if counts == EXACT else "N/A"
            ink = "white" if strength > 0.65 else INK if has_value else TICK
            axes.text(site, level, text, ha="center", va="center", fontsize=6.5, color=ink)
    axes.set_xlim(-0.5, count - 0.5)
    axes.grid(visible=False)
    whole_axis(axes, "Γ at site l")
