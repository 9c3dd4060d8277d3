"""Figure of the penalty sweep: metrics by strength λ, and ‖h_L‖ by epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from fa_registry.analyses.base import Analysis
from fa_registry.metrics import ACCURACY
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import (
    Canvas,
    chance_keys,
    chance_line,
    dotted_lines,
    in_order,
    intervals,
    key,
    shortened,
    value_axis,
    whole_axis,
)
from fa_registry.reporting.figures.frames import entry, in_rows, plain, variant, with_chance
from fa_registry.reporting.text.filters import compact

PANELS = {ACCURACY.name: "accuracy, whole test set", "h_L": "final ‖h_L‖", "gamma": "Γ, mean over sites 1..L"}
ACROSS, PANEL, LEFT, BOTTOM, HEAD = 3, 1.75, 0.62, 0.45, 0.3  # panels per row; inches


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return the numbers of all panels.

    The panels `accuracy`, `h_L` and `gamma` have one row per λ, with mean and interval over seeds. The panel `epochs` has ‖h_L‖ for
    each run and epoch.
    """
    records = {run.record.run_id: run.record for run in runs}
    entries = [entry(row, name, "penalty", "seed", "epoch") for row in analysis.rows for name in PANELS]
    for row in analysis.rows:
        key = {name: plain(row[name]) for name in ("method", "setting", "penalty")}
        for record in (records[run_id] for run_id in row["method"].run_ids if run_id in records):
            for epoch, reading in enumerate(record.trajectory.get("h_L", ())):
                values = {"seed": record.spec.seed, "epoch": epoch, "value": reading.value, "reason": reading.reason}
                entries.append({"panel": "epochs", **key, **values})
    return with_chance(variant(entries), runs)


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw each metric by λ, and ‖h_L‖ by epoch with one line per run, whose colour shows its λ."""
    frame, sweeps, _ = in_rows(frame)
    styles = in_order(sweeps)
    epochs, chance = frame[frame["panel"] == "epochs"], frame["chance"].iloc[0]
    top = canvas.legend(dotted_lines(styles) + chance_keys(chance)) + HEAD
    lower = math.ceil(epochs["row"].nunique() / ACROSS)  # rows of panels by epoch
    canvas.resize(top + (PANEL + BOTTOM) + lower * (PANEL + BOTTOM + HEAD))
    for index, (name, title) in enumerate(PANELS.items()):
        axes = _axes(canvas, index, top)
        _trade(axes, frame[frame["panel"] == name], styles)
        axes.set_title(title)
        if name == ACCURACY.name:
            chance_line(axes, chance)
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    strengths = in_order(f"λ = {strength:g}" for strength in sorted(epochs["penalty"].unique()))
    for index, (sweep, rows) in enumerate(epochs.groupby("row", sort=False)):
        axes = _axes(canvas, ACROSS + index, top)
        _epochs(axes, rows, strengths)
        axes.set_title(f"‖h_L‖, {shortened(sweep, 32)}", fontsize=8)
        if index == 0:
            lines = [key(label, color=colour) for label, (colour, _) in strengths.items()]
            axes.legend(handles=lines, fontsize=7, loc="best", handlelength=1.2)


def _axes(canvas: Canvas, index: int, top: float) -> Axes:
    row, column = divmod(index, ACROSS)
    wide = (canvas.width - 0.1) / ACROSS
    above = top + row * (PANEL + BOTTOM + HEAD)
    return canvas.axes(column * wide + LEFT, above, wide - LEFT, PANEL)


def _trade(axes: Axes, frame: pd.DataFrame, styles: dict[str, tuple[str, object]]) -> None:
    """Draw one line per sweep.

    The point for λ = 0 is one decade to the left of the smallest other λ. A dotted line connects this point to the next point.
    """
    position_of = _places(axes, frame["penalty"])
    finite = frame.dropna(subset="value")
    chance = frame.loc[frame["panel"] == ACCURACY.name, "chance"].dropna()
    value_axis(axes, [*finite["value"], *_tame(finite), *chance], "y", linear=(frame["panel"] == "gamma").all())
    for sweep, rows in finite.groupby("row", sort=False):
        colour, dash = styles[sweep]
        rows = rows.sort_values("penalty")
        shift = 0.24 * ((list(styles).index(sweep) + 0.5) / len(styles) - 0.5)  # so that intervals do not overlap
        positions, solid = rows["penalty"].map(position_of) + shift, rows["penalty"] > 0
        axes.plot(positions[solid], rows["value"][solid], color=colour, linestyle=dash, linewidth=1.3)
        if solid.any() and not solid.all():
            axes.plot(positions[:2], rows["value"][:2], color=colour, linestyle=":", linewidth=1.0)
        intervals(axes, positions, rows["low"], rows["high"], color=colour, linewidth=1.0, alpha=0.7)
        axes.plot(positions, rows["value"], "o", color=colour, markersize=4, zorder=3)
    axes.set_xlabel("λ")


def _tame(frame: pd.DataFrame) -> list[float]:
    """Return the interval ends near the plotted values, so a very wide interval does not stretch the axis."""
    if not len(frame):
        return []
    reach = 2 * (frame["value"].max() - frame["value"].min()) or abs(frame["value"]).max()
    ends = [*frame["low"].dropna(), *frame["high"].dropna()]
    return [end for end in ends if frame["value"].min() - reach <= end <= frame["value"].max() + reach]


def _places(axes: Axes, strengths: pd.Series) -> Callable[[float], float]:
    """Set a tick at every λ, and return the function from λ to its x position."""
    powers = sorted({math.log10(strength) for strength in strengths if strength > 0})
    zero = (powers[0] if powers else 0.0) - 1

    def at(strength: float) -> float:
        return math.log10(strength) if strength > 0 else zero

    ticks = {at(strength): "0" if strength == 0 else compact(strength) for strength in strengths}
    axes.set_xticks(list(ticks), list(ticks.values()), fontsize=7.5)
    axes.set_xlim(min(ticks) - 0.4, max(ticks) + 0.4)
    return at


def _epochs(axes: Axes, frame: pd.DataFrame, strengths: dict[str, tuple[str, object]]) -> None:
    """Draw a thin line per run; a cross marks the epoch before a non-finite norm."""
    value_axis(axes, frame.loc[frame["value"] > 0, "value"], "y")
    for (strength, _), rows in frame.groupby(["penalty", "seed"], sort=False):
        colour, _ = strengths[f"λ = {strength:g}"]
        finite = rows[rows["value"] > 0]
        axes.plot(finite["epoch"], finite["value"], color=colour, linewidth=1.1, alpha=0.9)
        if len(finite) > 0 and not rows["value"].iloc[-1] > 0:
            axes.plot(finite["epoch"].iloc[-1], finite["value"].iloc[-1], "X", color=colour, markersize=6)
    whole_axis(axes, "epoch", 5)
