"""Figure of the ablation analysis: which sets of instruments reject which methods.

An instrument is the main metric, Γ or a gating rule. The columns are sets of instruments, and the rows are methods. Colour and sign
of a cell show the decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import DECISIONS, PALETTE, Canvas, row_axis, row_width
from fa_registry.reporting.figures.frames import entry, in_rows, variant

STYLES = {  # decision: fill, sign, ink; the sign repeats the decision without colour
    "rejects": (PALETTE[1], "✕", "white"),
    "warns": (DECISIONS[0], "!", "black"),
    "cannot judge": (DECISIONS[1], "?", "black"),
    "accepts": (DECISIONS[2], "✓", "black"),
}
FIELD = np.array([(-0.46, -0.42), (0.46, -0.42), (0.46, 0.42), (-0.46, 0.42)])  # corners of a cell around its centre
ROW, HEAD, RIGHT = 0.26, 1.4, 0.9  # inches


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return one row per method and set of instruments, with the decision of the set."""
    sets = [column.name for column in analysis.columns if column.name not in ("method", "setting", "runs")]
    frame = variant(entry(row, name) for row in analysis.rows for name in sets)
    return frame.rename(columns={"panel": "instruments", "words": "decision"})


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw the decisions: methods as rows, sets of instruments as columns."""
    frame, rows, left_out = in_rows(frame)
    sets = list(dict.fromkeys(frame["instruments"]))
    handles = [Patch(color=fill, label=f"{sign}  {decision}") for decision, (fill, sign, _) in STYLES.items()]
    foot = canvas.legend(handles, corner="lower left")
    canvas.resize(HEAD + ROW * len(rows) + foot)
    axes = canvas.figure.add_subplot()
    for decision, cells in frame.groupby("decision", sort=False):
        centres = np.column_stack([cells["instruments"].map(sets.index), cells["row"].map(rows.index)])
        fill, sign, ink = STYLES[decision]
        axes.add_collection(PolyCollection(centres[:, None] + FIELD, facecolors=fill, linewidths=0))
        outline = TextPath((0, 0), sign, size=9)  # markers are faster to draw than texts
        marker = Path(outline.vertices - outline.get_extents().get_points().mean(axis=0), outline.codes)
        axes.plot(*centres.T, linestyle="", marker=marker, color=ink, markersize=6, markeredgewidth=0)
    row_axis(axes, rows, left_out)
    axes.set_xlim(-0.5, len(sets) - 0.5)
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(sets)), sets, rotation=40, ha="left", rotation_mode="anchor", fontsize=8)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    canvas.place(row_width(rows), RIGHT, foot, HEAD)
