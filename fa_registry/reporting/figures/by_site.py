"""The figure of ‖g_l‖ (left) and Γ_l (right) by site. Each setting has one row of panels."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from fa_registry.reporting.figures.canvas import (
    TICK,
    Canvas,
    dotted_lines,
    in_order,
    intervals,
    remark,
    shortened,
    value_axis,
    whole_axis,
)
from fa_registry.text_safety import escape_control

PANELS = {"g": "‖g_l‖ of the mean cross entropy", "gamma": "Γ_l, where the credit acts"}
MOST_SETTINGS, MOST_METHODS = 6, 14  # in a figure; the table contains all settings and methods
LEFT, PANEL, BOTTOM, HEAD = 0.7, 2.0, 0.45, 0.45  # inches


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw ‖g_l‖ (logarithmic axis) and Γ_l by site, as means over seeds."""
    methods, settings = (list(dict.fromkeys(frame[name])) for name in ("method", "setting"))
    styles = in_order(methods[:MOST_METHODS])
    top = canvas.legend(dotted_lines(styles))
    canvas.resize(top + len(settings[:MOST_SETTINGS]) * (PANEL + BOTTOM + HEAD))
    wide = canvas.width / len(PANELS)
    for index, setting in enumerate(settings[:MOST_SETTINGS]):
        for column, (name, title) in enumerate(PANELS.items()):
            above = top + HEAD + index * (PANEL + BOTTOM + HEAD)
            axes = canvas.axes(column * wide + LEFT, above, wide - LEFT - 0.12, PANEL)
            rows = frame[(frame["panel"] == name) & (frame["setting"] == setting) & frame["method"].isin(styles)]
            _panel(axes, rows, styles, log=name == "g")
            axes.set_title(title)
            if column == 0 and len(settings) > 1:
                text = escape_control(shortened(setting, 90))
                axes.text(0, 1.16, text, transform=axes.transAxes, fontsize=8.5, weight="bold")
    if len(methods) > MOST_METHODS or len(settings) > MOST_SETTINGS:
        left_out = max(len(methods) - MOST_METHODS, 0), max(len(settings) - MOST_SETTINGS, 0)
        text = "({} more methods and {} more settings in the table)".format(*left_out)
        canvas.figure.text(0.99, 0.003, text, ha="right", fontsize=7.5, color=TICK)


def _panel(axes: Axes, frame: pd.DataFrame, styles: dict[str, tuple[str, object]], log: bool) -> None:
    frame = frame.assign(value=frame["value"].where(frame["value"] > 0)) if log else frame
    value_axis(axes, frame["value"].dropna(), "y", linear=not log)
    if frame["value"].isna().all():
        remark(axes, 0.5, 0.4, "no number at any site", transform=axes.transAxes)
        axes.set_yticks([])
    if not log:
        axes.axhline(0, color=TICK, linewidth=0.8)
    for index, (method, rows) in enumerate(frame.groupby("method", sort=False)):
        colour, dash = styles[method]
        sites = rows["site"] + 0.04 * (index - len(styles) / 2)  # so that intervals do not overlap
        joined = rows["value"].mask(rows["exact"])  # Γ = 1 by construction is no part of a curve
        axes.plot(sites, joined, color=colour, linestyle=dash, linewidth=1.3)
        axes.plot(sites, joined, "o", color=colour, markersize=4, zorder=3)
        axes.plot(sites, rows["value"].where(rows["exact"]), "o", color=colour, mfc="white", markersize=4, zorder=3)
        low, high = (rows[end].where(rows["value"].notna()) for end in ("low", "high"))
        intervals(axes, sites, low, high, color=colour, linewidth=0.9, alpha=0.6)
    axes.set_xlim(-0.4, frame["site"].max() + 0.4 if len(frame) else 1)
    whole_axis(axes, "site l")
