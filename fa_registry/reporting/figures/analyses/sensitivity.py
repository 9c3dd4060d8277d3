"""One strip a threshold: the observed values, the threshold, and the band in which it may move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_registry.analyses.base import Analysis, Cell
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import _canvas
from fa_registry.reporting.figures.style import LIMIT, LIMIT_DASH, PALETTE, TICK
from fa_registry.reporting.text.filters import compact, visible

MARKERS = "os^D"
LINES = ("threshold", "no verdict changes")
STRIP, BOTTOM = 0.92, 0.35  # inches
COLUMNS = ["rule", "quantity", "unit", "kind", "method", "run_ids", "value", "reason"]


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """kind: threshold, low, high (the range) or value (one observed); a rule that no run has a figure for is left out."""
    observed = analysis.table("observed")
    units = {row["rule"].text: row["unit"].text for row in analysis.rows}
    values = [_row(row, units, "value", row["value"], row["method"].text) for row in observed.rows]
    seen = {row["rule"].text for row in observed.rows if row["value"].reading.value is not None}
    limits = [_row(row, units, kind, row[kind]) for row in analysis.rows for kind in ("threshold", "low", "high")]
    kept = [one for one in (*limits, *values) if one[0] in seen]
    return pd.DataFrame(kept, columns=COLUMNS).astype({"value": float})


def _row(row: Mapping[str, Cell], units: Mapping[str, str], kind: str, cell: Cell, method: str = "") -> tuple:
    rule, ids = row["rule"].text, " ".join(cell.run_ids)
    return (rule, row["quantity"].text, units[rule], kind, method, ids, cell.reading.value, cell.reading.reason)


def height(frame: pd.DataFrame) -> float:
    return BOTTOM + STRIP * frame["rule"].nunique() + _canvas.legend_height(_labels(_methods(frame)))


def _methods(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame.loc[frame["kind"] == "value", "method"]))


def _labels(methods: Sequence[str]) -> list[str]:
    """Of the legend."""
    return [*LINES, *(_canvas.shortened(method, _canvas.MOST_LETTERS) for method in methods)]


def draw(figure: Figure, frame: pd.DataFrame) -> None:
    """frame: a row a rule and method: the observed value, the threshold, and the band in which no verdict changes."""
    rules = list(dict.fromkeys(frame["rule"]))
    methods = _methods(frame)
    looks = _looks(methods)
    strips = figure.subplots(len(rules), 1, squeeze=False)[:, 0]
    for axes, rule in zip(strips, rules, strict=True):
        _strip(axes, frame[frame["rule"] == rule], looks)
    handles = [
        Line2D([], [], color=LIMIT, linewidth=1.2, linestyle=LIMIT_DASH, label=LINES[0]),
        Patch(color=_canvas.BAND, label=LINES[1]),
        *(_canvas.dot(method, *look) for method, look in looks.items()),
    ]
    _canvas.legend(figure, handles)
    _canvas.place(figure, 0.25, 0.15, BOTTOM, _canvas.legend_height(_labels(methods)) + 0.2, hspace=1.5)


def _looks(methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    """method → (colour, marker); after the palette's end the next marker tells methods apart."""
    return {
        method: (PALETTE[index % len(PALETTE)], MARKERS[index // len(PALETTE) % len(MARKERS)])
        for index, method in enumerate(methods)
    }


def _strip(axes: Axes, frame: pd.DataFrame, looks: Mapping[str, tuple[str, str]]) -> None:
    known = frame.dropna(subset="value")
    _canvas.value_axis(axes, known["value"])
    one = {kind: known.loc[known["kind"] == kind, "value"] for kind in ("threshold", "low", "high")}
    ends = axes.get_xlim()
    low, high = (one[kind].iloc[0] if len(one[kind]) else end for kind, end in zip(("low", "high"), ends, strict=True))
    axes.axvspan(low, high, color=_canvas.BAND, linewidth=0, zorder=0)
    for threshold in one["threshold"]:
        axes.axvline(threshold, color=LIMIT, linewidth=1.2, linestyle=LIMIT_DASH, zorder=3)
    for place, (method, (colour, marker)) in enumerate(looks.items()):
        rows = known[(known["kind"] == "value") & (known["method"] == method)]
        level = [(place + 0.5) / len(looks)] * len(rows)
        axes.plot(rows["value"], level, marker, color=colour, markersize=4.2, alpha=0.85, zorder=4)
    axes.set_ylim(1.08, -0.08)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.set_xlim(*ends)
    rule, quantity, unit = (frame[name].iloc[0] for name in ("rule", "quantity", "unit"))
    name = rule if rule.endswith(f".{quantity}") else f"{rule}: {quantity}"
    low, high = (compact(float(f"{end.iloc[0]:.3g}")) if len(end) else "" for end in (one["low"], one["high"]))
    words = f"{name}, between {low or 'no lower limit'} and {high or 'no upper limit'}"
    axes.set_title(visible(words), loc="left", fontsize=8.5, pad=3)
    look = {"ha": "right", "va": "bottom", "fontsize": 7, "color": TICK, "transform": axes.transAxes}
    axes.text(1.0, 1.04, visible(_canvas.shortened(unit, 52)), **look)


DRAWING = _canvas.Drawing(numbers, height, draw)
