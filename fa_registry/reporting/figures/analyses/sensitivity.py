"""Figure of the thresholds: one strip per threshold, with the observed values.

A strip also shows the range in which the threshold can change without changing a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import (
    BAND,
    LIMIT_LOOK,
    PALETTE,
    TICK,
    Canvas,
    dot,
    limit_key,
    shortened,
    value_axis,
)
from fa_registry.reporting.text.filters import compact
from fa_registry.text_safety import escape_control

MARKERS = "os^D"
STRIP, BOTTOM = 0.92, 0.35  # inches
COLUMNS = ["rule", "quantity", "unit", "kind", "method", "run_ids", "value", "reason"]


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return the numbers of the strips, for rules that have an observed value.

    Column `kind` states what the number is: `threshold`, `value` (an observed value), or one of `low` and `high`. The numbers `low`
    and `high` are the ends of the range in which no verdict changes.
    """
    observed = analysis.table("observed").rows
    units = {row["rule"].text: row["unit"].text for row in analysis.rows}
    rules_with_value = {row["rule"].text for row in observed if row["value"].reading.value is not None}
    cells = [(row, kind, "") for row in analysis.rows for kind in ("threshold", "low", "high")]
    cells += [(row, "value", row["method"].text) for row in observed]
    rows = []
    for row, kind, method in cells:
        cell, rule = row[kind], row["rule"].text
        if rule in rules_with_value:
            values = (" ".join(cell.run_ids), cell.reading.value, cell.reading.reason)
            rows.append((rule, row["quantity"].text, units[rule], kind, method, *values))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"value": float})


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """Draw one strip per rule with its threshold and the observed values of each method."""
    # the marker changes when all colours are used
    styles = {
        method: (PALETTE[index % len(PALETTE)], MARKERS[index // len(PALETTE) % len(MARKERS)])
        for index, method in enumerate(dict.fromkeys(frame.loc[frame["kind"] == "value", "method"]))
    }
    handles = [limit_key("threshold"), Patch(color=BAND, label="thresholds that change no verdict")]
    handles += [dot(method, *style) for method, style in styles.items()]
    top, count = canvas.legend(handles), frame["rule"].nunique()
    canvas.resize(BOTTOM + STRIP * count + top)
    strips = canvas.figure.subplots(count, 1, squeeze=False)[:, 0]
    for axes, (_, rows) in zip(strips, frame.groupby("rule", sort=False), strict=True):
        _strip(axes, rows, styles)
    canvas.place(0.25, 0.15, BOTTOM, top + 0.2, hspace=1.5)


def _strip(axes: Axes, frame: pd.DataFrame, styles: Mapping[str, tuple[str, str]]) -> None:
    finite = frame.dropna(subset="value")
    value_axis(axes, finite["value"])
    ends = axes.get_xlim()
    limits = finite[finite["kind"] != "value"].set_index("kind")["value"]
    axes.axvspan(limits.get("low", ends[0]), limits.get("high", ends[1]), color=BAND, linewidth=0, zorder=0)
    if "threshold" in limits:
        axes.axvline(limits["threshold"], **{**LIMIT_LOOK, "linewidth": 1.2}, zorder=3)
    for index, (method, (colour, marker)) in enumerate(styles.items()):
        rows = finite[(finite["kind"] == "value") & (finite["method"] == method)]
        level = [(index + 0.5) / len(styles)] * len(rows)
        axes.plot(rows["value"], level, marker, color=colour, markersize=4.2, alpha=0.85, zorder=4)
    axes.set_ylim(1.08, -0.08)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.set_xlim(*ends)
    rule, quantity, unit = (frame[name].iloc[0] for name in ("rule", "quantity", "unit"))
    name = rule if rule.endswith(f".{quantity}") else f"{rule}: {quantity}"
    low, high = (
        compact(float(f"{limits[end]:.3g}")) if end in limits else f"no {text} limit"
        for end, text in (("low", "lower"), ("high", "upper"))
    )
    axes.set_title(escape_control(f"{name}, between {low} and {high}"))
    style = {"ha": "right", "va": "bottom", "fontsize": 7, "color": TICK, "transform": axes.transAxes}
    axes.text(1.0, 1.04, escape_control(shortened(unit, 52)), **style)
