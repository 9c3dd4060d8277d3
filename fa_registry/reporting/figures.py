"""Trajectory figures as PNG bytes. Each has its numbers in trajectories.py, and looks the same whenever it is drawn.

Matplotlib's object interface only: pyplot keeps global state, and a library must not change its user's rcParams.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from PIL import Image

from fa_registry.protocol.grouping import Group
from fa_registry.reporting.filters import compact, visible
from fa_registry.reporting.trajectories import Panel, frozen_numbers, limit, trajectory_numbers

# Okabe and Ito's palette without its yellow, which vanishes on white: told apart under every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (4, 1, 1, 1)),
)  # after the palette's end the next dash pattern tells methods apart
CONTROL = "#767676"
INK, GRID, LIMIT = "#1f2328", "#e3e6ea", "#a40e26"
STYLE: Mapping[str, object] = MappingProxyType(
    {
        "font.family": "DejaVu Sans",  # ships with matplotlib, so that every machine draws the same pixels
        "font.size": 9.0,
        "mathtext.fontset": "dejavusans",
        "axes.edgecolor": "#8b949e",
        "axes.linewidth": 0.7,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "xtick.color": "#57606a",
        "ytick.color": "#57606a",
        "text.color": INK,
        "text.parse_math": False,  # names are foreign text; a `$` in one is no formula
    }
)
SIZE, DPI, COLOURS, LEGEND_COLUMNS = (5.0, 3.2), 140, 40, 4


def colours(groups: Sequence[Group]) -> dict[str, tuple[str, object]]:
    """method label → (colour, dash), by the order in which methods first appear; controls are grey."""
    trained = list(dict.fromkeys(group.method for group in groups if not group.control))
    taken = {
        name: (PALETTE[index % len(PALETTE)], DASHES[index // len(PALETTE) % len(DASHES)])
        for index, name in enumerate(trained)
    }
    return taken | {group.method: (CONTROL, "--") for group in groups if group.control}


def trajectory_png(panel: Panel, groups: Sequence[Group], shades: Mapping[str, tuple[str, object]]) -> bytes:
    """The figure of one panel in one setting. shades: see `colours`. Its numbers: trajectories.trajectory_numbers."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's own settings would change the bytes; the context brings them back
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=SIZE, dpi=DPI)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        handles = _draw_lines(axes, panel, trajectory_numbers(panel, groups), shades)
        handles += _draw_limit(axes, panel, groups)
        if panel.quantity == "accuracy":
            handles += _draw_frozen(axes, groups)
        _finish(figure, axes, panel, handles)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())  # (height, width, 4)
    return _compressed(pixels)


def _compressed(pixels: np.ndarray) -> bytes:
    """PNG with a palette and no metadata: a quarter of its size in true colour, which keeps big audits below 1 MB."""
    buffer = io.BytesIO()
    picture = (
        Image.fromarray(pixels).convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    )
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _draw_lines(
    axes: Axes, panel: Panel, frame: pd.DataFrame, shades: Mapping[str, tuple[str, object]]
) -> list[Line2D]:
    """A thin line a run; a run whose numbers stop being finite ends in a cross at its last one."""
    drawn: dict[str, Line2D] = {}
    for (method, run_id), rows in frame.groupby(["method", "run_id"], sort=False):
        colour, dash = shades[method]
        values = rows["value"].where(rows["value"] > 0) if panel.log else rows["value"]
        (line,) = axes.plot(rows["epoch"], values, color=colour, linestyle=dash, linewidth=1.2, alpha=0.9)
        line.set_gid(run_id)
        drawn.setdefault(method, Line2D([], [], color=colour, linestyle=dash, linewidth=1.8, label=visible(method)))
        known = rows[values.notna()]
        if len(known) < len(rows) and len(known):
            axes.plot(
                known["epoch"].iloc[-1:],
                known["value"].iloc[-1:],
                "X",
                color=colour,
                markersize=6.5,
                markeredgecolor="white",
                markeredgewidth=0.6,
                zorder=4,
            )
    return list(drawn.values())


def _draw_limit(axes: Axes, panel: Panel, groups: Sequence[Group]) -> list[Line2D]:
    found = limit(panel, groups)
    if found is None:
        return []
    rule, threshold = found
    axes.axhline(threshold, color=LIMIT, linewidth=1.1, linestyle=(0, (4, 2)), zorder=3)
    label = f"{visible(rule)} limit, {compact(threshold)}"
    return [Line2D([], [], color=LIMIT, linewidth=1.1, linestyle=(0, (4, 2)), label=label)]


def _draw_frozen(axes: Axes, groups: Sequence[Group]) -> list[Line2D]:
    """The range of the frozen controls' final accuracies over seeds: what trained blocks have to beat."""
    frame = frozen_numbers(groups)
    if not len(frame):
        return []
    low, high = frame["accuracy"].min(), frame["accuracy"].max()
    axes.axhspan(low, high, color=CONTROL, alpha=0.22, linewidth=0, zorder=1)
    axes.axhline((low + high) / 2, color=CONTROL, linewidth=0.8, zorder=1)
    return [Line2D([], [], color=CONTROL, alpha=0.35, linewidth=6, label="frozen control, final")]


def _finish(figure: Figure, axes: Axes, panel: Panel, handles: Sequence[Line2D]) -> None:
    if panel.log:
        _log_axis(axes)
    else:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    axes.set_xlabel("epoch (0 = initialisation)")
    axes.set_ylabel(panel.label, parse_math=True)
    axes.margins(x=0.02)
    figure.legend(
        handles=handles,
        loc="upper left",
        ncols=LEGEND_COLUMNS,
        frameon=False,
        fontsize=8.0,
        handlelength=2.0,
        columnspacing=1.2,
        borderaxespad=0.2,
    )
    # Fixed margins keep the axes of all panels in line, and take half the time of a layout engine.
    rows = max(1, math.ceil(len(handles) / LEGEND_COLUMNS))
    figure.subplots_adjust(left=0.135, right=0.985, bottom=0.14, top=max(0.5, 0.985 - 0.065 * rows))


def _log_axis(axes: Axes) -> None:
    """A logarithmic axis at least one decade high, so that it always has ticks; their labels need no formula parser.

    Its limits are set here: matplotlib's own margins overflow where an exploded norm spans hundreds of decades.
    """
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines] or [np.empty(0)])
    decades = np.log10(drawn[np.isfinite(drawn) & (drawn > 0)])
    low, high = (decades.min(), decades.max()) if decades.size else (0.0, 0.0)
    margin = max(0.05 * (high - low), (1 - (high - low)) / 2)
    limits = np.clip([low - margin, high + margin], -300, 300)  # doubles end at 308
    axes.set_ylim(*10.0**limits)
    axes.set_yscale("log")
    axes.set_yticks(_ticks(*limits))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.minorticks_off()


def _ticks(low: float, high: float) -> list[float]:
    """At most seven powers of ten between two decades; 1, 2 and 5 of each where there are few."""
    step = max(1, math.ceil((high - low) / 6))
    factors = (1, 2, 5) if high - low <= 2 else (1,)
    every = (
        factor * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        if power % step == 0
        for factor in factors
    )
    return [tick for tick in every if low <= math.log10(tick) <= high]
