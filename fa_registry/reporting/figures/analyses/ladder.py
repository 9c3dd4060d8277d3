"""Figure with two panels: accuracy by number of trained blocks, and accuracy by network depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from fa_registry.analyses.base import Analysis
from fa_registry.metrics import ACCURACY
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import (
    TICK,
    Canvas,
    chance_keys,
    chance_line,
    dotted_lines,
    in_order,
    intervals,
    key,
    value_axis,
    whole_axis,
)
from fa_registry.reporting.figures.frames import entry, in_rows, variant, with_chance

PANELS = {"trained": ("last k blocks trained", "k, trained blocks"), "depth": ("all blocks trained", "L, blocks")}
PANEL, LEFT, BOTTOM, HEAD = 2.3, 0.55, 0.5, 0.3  # inches


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return one row per number of trained blocks, and one row per network depth.

    Column `panel` is `trained` or `depth`. The panel `depth` groups the runs by scan: the runs of a scan differ only in the
    number of blocks. In this panel, column `setting` is the setting of the shallowest network of the scan. The panel `trained`
    leaves out methods with one or two rows, unless every method has only one or two rows.
    """
    count = Counter((row["method"].text, row["setting"].text) for row in analysis.rows)
    min_points = 3 if max(count.values(), default=0) > 2 else 1
    entries = [
        entry(row, ACCURACY.name) | {"panel": "trained", "blocks": row["trained"].reading.value, "frozen": None}
        for row in analysis.rows
        if count[row["method"].text, row["setting"].text] >= min_points
    ]
    for row in analysis.table("depth").rows:
        scan_values = {"panel": "depth", "method": f"{row['method'].text} by depth", "setting": row["scan"].text}
        entries.append(entry(row, ACCURACY.name, "blocks", "frozen") | scan_values)
    return with_chance(variant(entries), runs)


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw accuracy (a fraction) by number of trained blocks and by network depth."""
    panels = [name for name in PANELS if (frame["panel"] == name).any()]
    frame, rows, _ = in_rows(frame)
    styles = in_order(rows)
    frozen = [key("frozen control", color=TICK, linestyle=":", marker="x")] * ("depth" in panels)
    top = canvas.legend([*dotted_lines(styles), *frozen, *chance_keys(frame["chance"].iloc[0])]) + HEAD
    canvas.resize(top + PANEL + BOTTOM)
    wide = (canvas.width - 0.1) / len(panels)
    for column, name in enumerate(panels):
        title, label = PANELS[name]
        axes = canvas.axes(column * wide + LEFT, top, wide - LEFT - 0.05, PANEL)
        _panel(axes, frame[frame["panel"] == name], styles)
        axes.set_title(title)
        whole_axis(axes, label, 10)


def _panel(axes: Axes, frame: pd.DataFrame, styles: dict[str, tuple[str, object]]) -> None:
    value_axis(axes, [*frame["value"].dropna(), *frame["frozen"].dropna(), *frame["chance"].dropna()], "y")
    chance_line(axes, frame["chance"].iloc[0])
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    for index, (row, points) in enumerate(frame.groupby("row", sort=False)):
        colour, dash = styles[row]
        positions = points["blocks"] + 0.05 * (index - len(styles) / 2) / max(len(styles), 4)
        axes.plot(positions, points["value"], color=colour, linestyle=dash, marker="o", markersize=4, linewidth=1.3)
        axes.plot(positions, points["frozen"], color=colour, linestyle=":", marker="x", markersize=4, linewidth=1.0)
        intervals(axes, positions, points["low"], points["high"], color=colour, linewidth=0.9, alpha=0.6)
