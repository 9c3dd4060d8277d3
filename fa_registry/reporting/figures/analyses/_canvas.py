"""Helpers of the analysis figures: data frames, rows, legends, marks and axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from fa_registry.analyses.base import AnalysisCell
from fa_registry.protocol.paired_runs import common_chance
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.style import (
    CHANCE_LOOK,
    DPI,
    FRAME,
    GRID,
    INK,
    LIMIT,
    LIMIT_DASH,
    PALETTE,
    TICK,
    Canvas,
    styled,
)
from fa_registry.reporting.text.filters import compact
from fa_registry.text_safety import escape_control

MOST_LETTERS = 44  # of a row label
MOST_ROWS = 40  # methods in a figure; its table contains all
WIDTH = 7.2  # inches
BAND, PANE = "#cfe6d8", "#f3f4f6"  # the range of no change; the lane of missing numbers
DECISIONS = ("#F3C98B", "#d0d4d9", "#CFE6F5")  # fills of decisions, in addition to the palette
FLAT, USED = (GRID, BAND, PANE, *DECISIONS), (INK, TICK, FRAME, LIMIT, *PALETTE)
DECADES = 1.5  # a positive range wider than this is drawn on a logarithmic axis
NUMERIC = ("value", "low", "high", "site", "epoch", "trained", "penalty", "seed", "blocks", "frozen")  # any frame's
Draw = Callable[[Figure, pd.DataFrame], None]


def png(draw: Draw, numbers: pd.DataFrame, dpi: int = DPI) -> bytes:
    """Draw a figure with fixed settings and return it as PNG bytes.

    The user's matplotlib settings have no effect. The image has a colour palette and no metadata, so the bytes are few and
    reproducible.
    """
    with styled():
        canvas = Canvas(WIDTH, 1.2, dpi)
        if len(numbers):
            draw(canvas.figure, numbers)
        else:
            text = "no number to draw: see the remarks of the analysis"
            canvas.figure.text(0.5, 0.5, text, ha="center", va="center")
        return canvas.png(FLAT, USED)


def variant(entries: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Return a data frame with one row per entry.

    The columns listed in NUMERIC have the type float. A missing number is NaN.
    """
    frame = pd.DataFrame(list(entries))
    return frame.astype({name: float for name in NUMERIC if name in frame})


def with_chance(frame: pd.DataFrame, runs: Iterable[RunAudit]) -> pd.DataFrame:
    """Add the column `chance`, the accuracy of guessing.

    The value is NaN if it is unknown or differs between runs.
    """
    frame["chance"] = common_chance(run.record for run in runs)
    return frame


def chance_line(axes: Axes, chance: float) -> None:
    """Draw a line at the accuracy of guessing, if this accuracy is not NaN."""
    if not math.isnan(chance):
        axes.axhline(chance, **CHANCE_LOOK)


def chance_entry(frame: pd.DataFrame) -> list[Line2D]:
    """Return the legend entry of the chance line.

    Returns:
        An empty list if the frame has no value of `chance`.
    """
    return [Line2D([], [], **CHANCE_LOOK, label="chance")] * bool(frame["chance"].notna().any())


def entry(row: Mapping[str, AnalysisCell], name: str, *keys: str) -> dict[str, object]:
    """Return one cell of an analysis table as a row of a data frame.

    Args:
        row: A row of the table.
        name: Column of the cell.
        keys: Further columns whose values are copied into the result.
    """
    cell = row[name]
    low, high = cell.interval or (None, None)
    values = {"words": cell.text, "value": cell.reading.value, "low": low, "high": high, "reason": cell.reading.reason}
    return {
        "panel": name,
        **{key: plain(row[key]) if key in row else None for key in ("method", "setting", *keys)},
        **values,
    }


def plain(cell: AnalysisCell) -> str | float | None:
    """Return the number of a numeric cell, or the text of a text cell.

    Returns:
        None if the number is missing.
    """
    return cell.reading.value if cell.reading else cell.text


def named(numbers: pd.DataFrame) -> pd.DataFrame:
    """Add a column `row` with the label of each method.

    If there are several settings, the label contains the parts of the setting that differ between them.
    """
    settings = list(dict.fromkeys(numbers["setting"]))
    parts = [setting.split(" · ") for setting in settings]
    shared = set.intersection(*map(set, parts)) if parts else set()
    distinct_parts = {
        setting: " · ".join(part for part in several if part not in shared)
        for setting, several in zip(settings, parts, strict=True)
    }
    rows: dict[tuple[str, str], str] = {}
    for method, setting in dict.fromkeys(zip(numbers["method"], numbers["setting"], strict=True)):
        text = escape_control(
            f"{method} · {distinct_parts[setting]}" if len(settings) > 1 and distinct_parts[setting] else method
        )
        short_text = shortened(text, MOST_LETTERS)
        twice = short_text in rows.values()  # rows with the same shortened text would be drawn over each other
        rows[method, setting] = f"{shortened(text, MOST_LETTERS - 5)} #{len(rows) + 1}" if twice else short_text
    return numbers.assign(row=[rows[key] for key in zip(numbers["method"], numbers["setting"], strict=True)])


def shortened(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def in_rows(numbers: pd.DataFrame) -> tuple[pd.DataFrame, list[str], int]:
    """Return the data of the first MOST_ROWS figure rows.

    Returns:
        (data of these rows, their labels in order, number of rows that were left out).
    """
    numbers = named(numbers)
    rows = list(dict.fromkeys(numbers["row"]))
    visible_rows = rows[:MOST_ROWS]
    return numbers[numbers["row"].isin(visible_rows)], visible_rows, len(rows) - len(visible_rows)


def row_width(rows: Sequence[str]) -> float:
    """Return the width in inches of the row labels on the left side of the axes."""
    return 0.25 + 0.07 * max(map(len, rows), default=0)


def row_axis(axes: Axes, rows: Sequence[str], left_out: int = 0) -> None:
    """Label the rows on the y axis; the first row is at the top.

    Args:
        axes: The axes.
        rows: The labels.
        left_out: Number of rows that are not drawn; if not 0, the number is added to the label of the x axis.
    """
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelsize=8)
    if left_out:
        axes.set_xlabel(f"{axes.get_xlabel()}   ({left_out} more rows in the table)".strip())


def value_axis(axes: Axes, values: Iterable[float], axis: str = "x") -> None:
    """Set limits, scale and ticks of an axis for the given values.

    The scale is logarithmic if all values are positive and their range exceeds DECADES decades.
    """
    finite = np.array([value for value in values if math.isfinite(value)])
    if finite.size and finite.min() > 0 and np.ptp(np.log10(finite)) > DECADES:
        _decades(axes, axis, np.log10(finite))
        return
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 0.1
    ruler = axes.xaxis if axis == "x" else axes.yaxis
    ruler.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ruler.set_major_formatter(_plain_ticks(max(abs(low), abs(high)) / margin))
    axes.set(**{f"{axis}lim": (low - margin, high + margin)})


def _plain_ticks(fineness: float) -> FuncFormatter:
    """Return a formatter of tick labels with enough digits to distinguish the ticks.

    Args:
        fineness: The largest value divided by the margin of the axis.
    """
    digits = max(4, math.ceil(math.log10(fineness or 1)) + 2)
    if digits > 6:
        return FuncFormatter(lambda value, _: f"{value:.{digits}g}")
    return FuncFormatter(lambda value, _: compact(float(f"{value:.{digits}g}")))


def _decades(axes: Axes, axis: str, powers: np.ndarray) -> None:
    """Set limits and ticks of a logarithmic axis.

    The automatic margins of matplotlib overflow for norms that range over hundreds of decades.
    """
    margin = 0.05 * (powers.max() - powers.min())
    low, high = np.clip([powers.min() - margin, powers.max() + margin], -300, 300)
    axes.set(**{f"{axis}lim": (10.0**low, 10.0**high), f"{axis}scale": "log"})
    step = max(1, math.ceil((high - low) / 7))
    ruler = axes.xaxis if axis == "x" else axes.yaxis
    ruler.set_ticks([10.0**power for power in range(math.ceil(low), math.floor(high) + 1) if power % step == 0])
    ruler.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    ruler.set_minor_locator(NullLocator())


def intervals(
    axes: Axes, positions: Sequence[float], low: Sequence[float], high: Sequence[float], **style: object
) -> None:
    """Draw a vertical line from `low` to `high` at each x position.

    No line is drawn where a value is NaN.
    """
    axes.plot(np.array([positions, positions]), np.array([low, high]), **style)


def remark(axes: Axes, x: float, y: float, text: str, ha: str = "center", **text_options: object) -> None:
    """Write a grey text at the position of a missing number."""
    axes.text(x, y, text, ha=ha, va="center", color=TICK, fontsize=8, **text_options)


def legend(figure: Figure, handles: Sequence[Artist], corner: str = "upper left") -> None:
    """Draw the legend at the upper or lower edge of the figure.

    The legend needs the height that `legend_height` returns.
    """
    figure.legend(handles=handles, loc=corner, ncols=_columns(handles))


def legend_height(handles: Sequence[Artist]) -> float:
    """Return the height in inches of a legend with these entries."""
    return 0.12 + 0.19 * math.ceil(len(handles) / _columns(handles))


def _columns(handles: Sequence[Artist]) -> int:
    widest = 0.55 + 0.07 * max(len(handle.get_label()) for handle in handles)  # inches
    return max(1, min(4, int(WIDTH / widest)))


def dot(label: str, colour: object, marker: str = "o", fill: object = None) -> Line2D:
    """Return a legend entry for a marker without a line."""
    style = {"color": colour, "marker": marker, "markersize": 4.5, "markerfacecolor": fill or colour}
    return Line2D([], [], linestyle="", label=shortened(escape_control(label), MOST_LETTERS), **style)


def lines_with_dots(styles: Mapping[str, tuple[str, object]]) -> list[Line2D]:
    """Return legend entries for methods that are drawn as lines with dots.

    Args:
        styles: Label → (colour, dash pattern).
    """
    return [
        Line2D(
            [],
            [],
            color=colour,
            linestyle=dash,
            marker="o",
            markersize=4,
            label=shortened(escape_control(label), MOST_LETTERS),
        )
        for label, (colour, dash) in styles.items()
    ]


def limit_line(label: str) -> Line2D:
    """Return the legend entry of a threshold."""
    return Line2D([], [], color=LIMIT, linewidth=1.2, linestyle=LIMIT_DASH, label=label)


def place(figure: Figure, left: float, right: float, bottom: float, top: float, **options: float) -> None:
    """Set fixed margins of the figure in inches.

    A layout engine of matplotlib is slower, and it moves the axes when a label changes.
    """
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=left / width, right=1 - right / width, bottom=bottom / height, top=1 - top / height, **options
    )
