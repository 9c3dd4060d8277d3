"""One row of panels a setting: ‖g_l‖ on the left and Γ_l on the right by site, a line a method."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import _canvas
from fa_registry.reporting.figures.style import TICK, in_order

PANELS = {"g": "‖g_l‖ of the mean cross entropy", "gamma": "Γ_l, where the credit acts"}
MOST_SETTINGS, MOST_METHODS = 6, 14  # a figure shows; the table has all
LEFT, PANEL, BOTTOM, HEAD = 0.7, 2.0, 0.45, 0.45  # inches
COLUMNS = ["panel", "method", "setting", "site", "value", "low", "high", "counts", "reason"]


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """One row a method, site and panel: mean over seeds with its interval. counts: whether Γ_l says anything there."""
    rows = [
        (
            name,
            row["method"].text,
            row["setting"].text,
            row["site"].reading.value,
            row[name].reading.value,
            *(row[name].interval or (None, None)),
            row["counts"].text if name == "gamma" else "yes",
            row[name].reading.reason,
        )
        for row in analysis.rows
        for name in PANELS
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(["site", "value", "low", "high"], float))


def height(frame: pd.DataFrame) -> float:
    settings = min(frame["setting"].nunique(), MOST_SETTINGS)
    return _canvas.legend_height(_methods(frame)) + settings * (PANEL + BOTTOM + HEAD)


def _methods(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame["method"]))[:MOST_METHODS]


def draw(figure: Figure, frame: pd.DataFrame) -> None:
    """frame: a row a method, setting and site: ‖g_l‖ (log axis) and Γ_l, means over seeds."""
    methods = _methods(frame)
    colours = in_order(methods)
    settings = list(dict.fromkeys(frame["setting"]))
    for place, setting in enumerate(settings[:MOST_SETTINGS]):
        for column, (name, title) in enumerate(PANELS.items()):
            axes = _axes(figure, place, column, _canvas.legend_height(methods))
            rows = frame[(frame["panel"] == name) & (frame["setting"] == setting) & frame["method"].isin(methods)]
            _panel(axes, rows, colours, log=name == "g")
            axes.set_title(title, loc="left", fontsize=8.5, pad=3)
            if column == 0 and len(settings) > 1:
                words = _canvas.visible(_canvas.shortened(setting, 90))
                axes.text(0, 1.16, words, transform=axes.transAxes, fontsize=8.5, weight="bold", parse_math=False)
    handles = [
        Line2D([], [], color=colour, linestyle=dash, marker="o", markersize=4, label=_label(method))
        for method, (colour, dash) in colours.items()
    ]
    _canvas.legend(figure, handles)
    left_out = frame["method"].nunique() - len(methods), len(settings) - MOST_SETTINGS
    if max(left_out) > 0:
        words = f"({max(left_out[0], 0)} more methods and {max(left_out[1], 0)} more settings in the table)"
        figure.text(0.99, 0.003, words, ha="right", fontsize=7.5, color=TICK)


def _label(method: str) -> str:
    return _canvas.visible(_canvas.shortened(method, _canvas.MOST_LETTERS)).replace("$", "\\$")


def _axes(figure: Figure, row: int, column: int, top: float) -> Axes:
    """Places in inches, so that one setting more does not move the others."""
    width, total = figure.get_size_inches()
    wide = width / len(PANELS)
    floor = total - top - (row + 1) * (PANEL + HEAD) - row * BOTTOM
    return figure.add_axes(((column * wide + LEFT) / width, floor / total, (wide - LEFT - 0.12) / width, PANEL / total))


def _panel(axes: Axes, frame: pd.DataFrame, colours: dict[str, tuple[str, object]], log: bool) -> None:
    """A hollow marker where Γ is exact by construction; a line breaks where a site has no number."""
    known = frame[frame["value"] > 0] if log else frame.dropna(subset="value")
    _canvas.value_axis(axes, known["value"], "y")
    if not len(known):
        look = {"ha": "center", "va": "center", "color": TICK, "fontsize": 8}
        axes.text(0.5, 0.4, "no number at any site", transform=axes.transAxes, **look)
        axes.set_yticks([])
    if not log:
        axes.axhline(0, color=TICK, linewidth=0.8)
    for place, (method, rows) in enumerate(frame.groupby("method", sort=False)):
        colour, dash = colours[method]
        values = rows["value"].where(rows["value"] > 0) if log else rows["value"]
        sites = rows["site"] + 0.04 * (place - len(colours) / 2)  # so that intervals stand side by side
        axes.plot(sites, values, color=colour, linestyle=dash, linewidth=1.3)
        for site, value, low, high, counts in zip(
            sites, values, rows["low"], rows["high"], rows["counts"], strict=True
        ):
            if value == value:
                fill = colour if counts == "yes" else "white"
                axes.plot(site, value, "o", color=colour, markerfacecolor=fill, markersize=4, zorder=3)
            if value == value and low == low:
                axes.plot([site, site], [low, high], color=colour, linewidth=0.9, alpha=0.6)
    axes.set_xlim(-0.4, frame["site"].max() + 0.4 if len(frame) else 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_xlabel("site l")


DRAWING = _canvas.Drawing(numbers, height, draw)
