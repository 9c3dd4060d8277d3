"""Figure of the recipes: margin over the frozen control against growth, one point per recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import TICK, Canvas, in_order, remark, shortened, value_axis
from fa_registry.reporting.figures.frames import MOST_ROWS, entry, variant

HIGH, LINE, LEFT, BOTTOM, SHARE = 3.4, 0.165, 0.62, 0.5, 0.56  # inches; share of the width for the axes


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return margin and growth of each recipe at each number of epochs.

    The margin and its 95 % interval are in the columns `value`, `low` and `high`.
    """
    keys = ("recipe", "method_name", "epochs", "growth_init_max")
    (margin,) = (column for column in analysis.columns if column.name == "margin")
    return variant({**entry(row, "margin", *keys), "unit": margin.unit} for row in analysis.rows)


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw a numbered point per recipe at its largest number of epochs.

    A thin line leads to this point from smaller numbers of epochs.
    """
    numbers_of = {recipe: number for number, recipe in enumerate(dict.fromkeys(frame["recipe"]), 1)}
    shown = frame[frame["recipe"].map(numbers_of) <= MOST_ROWS]
    colours = {name: colour for name, (colour, _) in in_order(frame["method_name"]).items()}
    visible = [recipe for recipe, number in numbers_of.items() if number <= MOST_ROWS]
    canvas.resize(max(HIGH + BOTTOM, LINE * (len(visible) + 2)) + 0.2)
    axes = canvas.axes(LEFT, 0.1, SHARE * canvas.width - LEFT, canvas.height - BOTTOM - 0.2)
    drawable = shown.dropna(subset=["value", "growth_init_max"])
    value_axis(axes, drawable["growth_init_max"])
    value_axis(axes, [*drawable["value"], 0.0], "y", linear=True)
    axes.axhline(0, color=TICK, linewidth=1.0)
    axes.set(
        xlabel="largest growth since initialisation (small dots: fewer epochs)",
        ylabel=f"margin over the frozen control, {frame['unit'].iloc[0]}",
    )
    for recipe, rows in drawable.sort_values("epochs").groupby("recipe", sort=False):
        _point(axes, rows, numbers_of[recipe], colours[rows["method_name"].iloc[0]])
    if drawable.empty:
        remark(axes, 0.5, 0.5, "N/A", transform=axes.transAxes)
    _list(canvas, shown, numbers_of, colours)


def _point(axes: Axes, rows: pd.DataFrame, number: int, colour: str) -> None:
    """Draw one recipe: the line over its numbers of epochs, and its number in a disc at the largest one."""
    last = rows.iloc[-1]
    axes.plot(rows["growth_init_max"], rows["value"], "o-", color=colour, linewidth=0.8, markersize=2.5, alpha=0.7)
    axes.plot([last["growth_init_max"]] * 2, last[["low", "high"]], color=colour, linewidth=1.1, alpha=0.7)
    axes.plot(last["growth_init_max"], last["value"], "o", color=colour, markersize=10, zorder=3)
    axes.text(
        last["growth_init_max"],
        last["value"],
        str(number),
        color="white",
        fontsize=6.5,
        ha="center",
        va="center",
        zorder=4,
    )


def _list(canvas: Canvas, frame: pd.DataFrame, numbers_of: Mapping[str, int], colours: Mapping[str, str]) -> None:
    """Write the number and the label of each recipe at the right."""
    left, line = SHARE * canvas.width + 0.25, LINE
    for recipe, rows in frame.groupby("recipe", sort=False):
        height = 0.2 + line * numbers_of[recipe]
        canvas.dots([(left, height)], colours[rows["method_name"].iloc[0]])
        canvas.text(left + 0.1, height, f"{numbers_of[recipe]}  {shortened(recipe)}")
    hidden = len(numbers_of) - MOST_ROWS
    if hidden > 0:
        canvas.text(left, 0.2 + line * (MOST_ROWS + 1), f"{hidden} more recipes in the table", color=TICK)
