"""What λ buys and costs, quantity by quantity, and below it ‖h_L‖ by epoch for every strength."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import _canvas
from fa_registry.reporting.figures.style import in_order
from fa_registry.reporting.text.filters import compact

PANELS = {"accuracy": "accuracy, whole test set", "h_L": "final ‖h_L‖", "gamma": "Γ, mean over sites 1..L"}
ACROSS, PANEL, LEFT, BOTTOM, HEAD = 3, 1.75, 0.62, 0.45, 0.3  # panels a row; inches
COLUMNS = ["panel", "method", "setting", "penalty", "seed", "epoch", "value", "low", "high", "reason"]
NUMERIC = ["penalty", "seed", "epoch", "value", "low", "high"]


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Panels accuracy, h_L, gamma: one row a λ, mean and interval over seeds. Panel epochs: ‖h_L‖ of a run at an epoch."""
    records = {run.record.run_id: run.record for run in runs}
    means, epochs = [], []
    for row in analysis.rows:
        key = (row["method"].text, row["setting"].text, row["penalty"].reading.value)
        for name in PANELS:
            reading, interval = row[name].reading, row[name].interval or (None, None)
            means.append((name, *key, None, None, reading.value, *interval, reading.reason))
        for record in (records[run_id] for run_id in row["method"].run_ids if run_id in records):
            for epoch, reading in enumerate(record.trajectory.get("h_L", ())):
                epochs.append(("epochs", *key, record.spec.seed, epoch, reading.value, None, None, reading.reason))
    return pd.DataFrame([*means, *epochs], columns=COLUMNS).astype(dict.fromkeys(NUMERIC, float))


def height(frame: pd.DataFrame) -> float:
    return _top(frame) + (PANEL + BOTTOM) + _lower(frame) * (PANEL + BOTTOM + HEAD)


def _top(frame: pd.DataFrame) -> float:
    return _canvas.legend_height(_canvas.rows_of(_canvas.named(frame))) + HEAD


def _lower(frame: pd.DataFrame) -> int:
    """Rows of panels that follow the epochs."""
    return math.ceil(_canvas.named(frame[frame["panel"] == "epochs"])["row"].nunique() / ACROSS)


def draw(figure: Figure, frame: pd.DataFrame) -> None:
    """frame: a row a method, λ and quantity, over seeds; and ‖h_L‖ by epoch, a line a strength."""
    frame = _canvas.named(frame)
    sweeps = _canvas.rows_of(frame)
    colours = in_order(sweeps)
    for index, (name, title) in enumerate(PANELS.items()):
        axes = _axes(figure, 0, index, _top(frame))
        _trade(axes, frame[(frame["panel"] == name) & frame["row"].isin(sweeps)], colours)
        axes.set_title(title, loc="left", fontsize=8.5, pad=3)
        if name == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    handles = [
        Line2D([], [], color=colours[one][0], linestyle=colours[one][1], marker="o", markersize=4, label=one)
        for one in sweeps
    ]
    _canvas.legend(figure, handles)
    epochs = frame[(frame["panel"] == "epochs") & frame["row"].isin(sweeps)]
    strengths = in_order(f"λ = {strength:g}" for strength in sorted(epochs["penalty"].unique()))
    for index, (sweep, rows) in enumerate(epochs.groupby("row", sort=False)):
        axes = _axes(figure, 1 + index // ACROSS, index % ACROSS, _top(frame))
        _epochs(axes, rows, strengths)
        axes.set_title(f"‖h_L‖, {_canvas.shortened(sweep, 32)}", loc="left", fontsize=8, pad=3)
        if index == 0:
            lines = [Line2D([], [], color=colour, label=label) for label, (colour, _) in strengths.items()]
            axes.legend(handles=lines, frameon=False, fontsize=7, loc="best", handlelength=1.2, borderaxespad=0.2)


def _axes(figure: Figure, row: int, column: int, top: float) -> Axes:
    """Panel places in inches, so that one row more does not move the others."""
    width, total = figure.get_size_inches()
    wide = (width - 0.1) / ACROSS
    floor = total - top - PANEL - row * (PANEL + BOTTOM + HEAD)
    return figure.add_axes(((column * wide + LEFT) / width, floor / total, (wide - LEFT) / width, PANEL / total))


def _trade(axes: Axes, frame: pd.DataFrame, colours: dict[str, tuple[str, object]]) -> None:
    """One line a sweep; λ = 0 has a place of its own, one decade below the smallest other, and no solid line to it."""
    at = _places(axes, frame["penalty"])
    known = frame.dropna(subset="value")
    _canvas.value_axis(axes, [*known["value"], *_tame(known)], "y")
    for sweep, rows in known.groupby("row", sort=False):
        colour, dash = colours[sweep]
        rows = rows.sort_values("penalty")
        shift = 0.24 * ((list(colours).index(sweep) + 0.5) / len(colours) - 0.5)  # so that intervals stand side by side
        places = [at(strength) + shift for strength in rows["penalty"]]
        solid = [index for index, strength in enumerate(rows["penalty"]) if strength > 0]
        values = rows["value"].tolist()
        axes.plot([places[i] for i in solid], [values[i] for i in solid], color=colour, linestyle=dash, linewidth=1.3)
        if len(solid) < len(values) and solid:
            axes.plot(places[:2], values[:2], color=colour, linestyle=":", linewidth=1.0)
        for place, value, low, high in zip(places, values, rows["low"], rows["high"], strict=True):
            if low == low:
                axes.plot([place, place], [low, high], color=colour, linewidth=1.0, alpha=0.7)
            axes.plot(place, value, "o", color=colour, markersize=4, zorder=3)
    axes.set_xlabel("λ")


def _tame(known: pd.DataFrame) -> list[float]:
    """Interval ends that belong on the axis: those of two seeds may reach far beyond all values and would squeeze them."""
    if not len(known):
        return []
    reach = 2 * (known["value"].max() - known["value"].min()) or abs(known["value"]).max()
    ends = [*known["low"].dropna(), *known["high"].dropna()]
    return [end for end in ends if known["value"].min() - reach <= end <= known["value"].max() + reach]


def _places(axes: Axes, strengths: pd.Series) -> Callable[[float], float]:
    """Ticks at every λ; returns where a λ stands."""
    powers = sorted({math.log10(strength) for strength in strengths if strength > 0})
    zero = (powers[0] if powers else 0.0) - 1

    def at(strength: float) -> float:
        return math.log10(strength) if strength > 0 else zero

    ticks = {at(strength): "0" if strength == 0 else compact(strength) for strength in strengths}
    axes.set_xticks(list(ticks), list(ticks.values()), fontsize=7.5)
    axes.set_xlim(min(ticks) - 0.4, max(ticks) + 0.4)
    return at


def _epochs(axes: Axes, frame: pd.DataFrame, strengths: dict[str, tuple[str, object]]) -> None:
    """A thin line a run; one whose norm stops being finite ends in a cross."""
    known = frame[frame["value"] > 0]
    _canvas.value_axis(axes, known["value"], "y")
    runs: dict[tuple[float, float], list[tuple[float, float]]] = {}  # a frame a run would take longer than its line
    for strength, seed, epoch, value in zip(
        *(frame[name] for name in ("penalty", "seed", "epoch", "value")), strict=True
    ):
        runs.setdefault((strength, seed), []).append((epoch, value))
    for (strength, _), places in runs.items():
        colour = strengths[f"λ = {strength:g}"][0]
        finite = [place for place in places if place[1] > 0]
        axes.plot(*zip(*finite, strict=True), color=colour, linewidth=1.1, alpha=0.9)
        if finite and finite[-1] != places[-1]:
            axes.plot(*finite[-1], "X", color=colour, markersize=6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_xlabel("epoch")


DRAWING = _canvas.Drawing(numbers, height, draw)
