"""Accuracy of every seed of every method, above the band of the frozen controls and the line a method has to pass."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from fa_registry.protocol.grouping import Group
from fa_registry.quantities import over_seeds, quantity_of
from fa_registry.records import Reading
from fa_registry.reporting.figures.plates import LABEL, SMALL, WIDTH, Box, Inches, data_uri, from_frame, padded
from fa_registry.reporting.figures.style import CONTROL, GRID, LIMIT, LIMIT_DASH, PALETTE, TICK
from fa_registry.reporting.labels import group_label, short_names
from fa_registry.reporting.lookups import scalar_estimate
from fa_registry.reporting.text import filters
from fa_registry.reporting.values import Number, Plate, Row, RowGroup

TITLE, BAND = "Accuracy of every seed", "#d9dcdf"
MOST, LETTERS = 30, 26  # methods a figure shows, and letters of a name
ROW, TOP, BOTTOM = 0.2, 0.36, 0.42  # inches
COLUMNS = ("method", "control", "seed", "run_id", "value", "reason", "line", "rule", "margin")


def accuracy_numbers(groups: Sequence[Group]) -> pd.DataFrame:
    """One row a run. line: the frozen controls' mean plus the margin (pp) of the rule that asks for one; NaN where none does."""
    rule, margin, line = _line(groups)
    rows = [
        (group_label(group), run.record.spec.control, run.record.spec.seed, run.record.run_id, one.value, one.reason)
        for group in groups
        for run in group.runs
        if (one := run.record.measurements.scalars.get("accuracy")) is not None
    ]
    frame = pd.DataFrame([(*row, line, rule, margin) for row in rows], columns=list(COLUMNS))
    return frame.astype({"value": float, "line": float, "margin": float, "seed": int})


def _line(groups: Sequence[Group]) -> tuple[str, float, float]:
    """(rule, margin in percentage points, accuracy it asks for), of the first finding on a margin over the frozen control."""
    frozen = scalar_estimate(
        (run for group in groups for run in group.runs if run.record.spec.control == "frozen"),
        quantity_of("accuracy"),
    ).mean.reading.value
    asked = (
        (one.rule, one.threshold)
        for group in groups
        for run in group.runs
        for one in run.findings
        if one.quantity == "margin_pp" and one.threshold is not None
    )
    rule, threshold = next(asked, ("", math.nan))
    if frozen is None or not rule:
        return "", math.nan, math.nan
    return rule, threshold, frozen + threshold / 100


def accuracy_plate(groups: Sequence[Group], dpi: int) -> Plate | None:
    """The figure of one setting; None where no run has an accuracy."""
    frame = accuracy_numbers(groups)
    if frame["value"].isna().all():
        return None
    caption = "A dot a seed, a bar at their mean, over the whole test set."
    caption += " The grey band is the range of the frozen controls." if (frame["control"] == "frozen").any() else ""
    words = _line_in_words(frame)
    caption += f" The dashed line is {words}." if words else ""
    hidden = frame["method"].nunique() - MOST
    caption += f" {hidden} more methods are in the table." if hidden > 0 else ""
    return Plate(
        TITLE,
        f"{TITLE}: {'; '.join(_in_words(frame))}.{f' Dashed line: {words}.' if words else ''}",
        caption,
        data_uri(draw(frame, dpi)),
        "Accuracy over the whole test set, one column a seed",
        tuple(f"seed {seed}" for seed in _seeds(frame)),
        _table(frame),
    )


def _line_in_words(frame: pd.DataFrame) -> str:
    line, rule, margin = (frame[name].iloc[0] for name in ("line", "rule", "margin"))
    return f"the frozen controls' mean {filters.pp(margin)} ({rule}): {filters.pct(line)}" if rule else ""


def _seeds(frame: pd.DataFrame) -> list[int]:
    return sorted(frame["seed"].unique().tolist())


def _in_words(frame: pd.DataFrame) -> list[str]:
    words = []
    for method, rows in frame.groupby("method", sort=False):
        known = rows["value"].dropna()
        low, high = (filters.pct(end) for end in (known.min(), known.max())) if len(known) else ("", "")
        words.append(f"{method} {low if low == high else f'{low} to {high}'}" if low else f"{method} N/A")
    return words


def _table(frame: pd.DataFrame) -> tuple[RowGroup[Number], ...]:
    seeds, groups = _seeds(frame), []
    for method, rows in frame.groupby("method", sort=False):
        first = rows.drop_duplicates("seed").set_index("seed")
        cells = [first.loc[seed] if seed in first.index else None for seed in seeds]
        numbers = tuple(_number(cell) for cell in cells)
        groups.append(RowGroup(str(method), (Row("", numbers),), run_ids=tuple(first["run_id"])))
    return tuple(groups)


def _number(cell: pd.Series | None) -> Number:
    if cell is None:
        return Number(Reading(None, "this seed was not run"), "pct", ())
    return Number(from_frame(cell["value"], cell["reason"]), "pct", (cell["run_id"],))


def draw(frame: pd.DataFrame, dpi: int) -> bytes:
    """The picture of these numbers, nothing else."""
    methods = list(dict.fromkeys(frame["method"]))[:MOST]
    names = short_names(methods, LETTERS)
    left = 0.16 + 0.068 * max(map(len, names))
    low, high = padded([*frame["value"], *frame["line"]], least=0.04)
    box = Box(left, TOP, WIDTH - left - 0.2, ROW * len(methods), low, high, len(methods) - 0.5, -0.5)
    sheet = Inches(TOP + box.height + BOTTOM, dpi)
    _ground(sheet, box, frame)
    for row, method in enumerate(methods):
        shown = frame[frame["method"] == method]
        colour = PALETTE[0] if shown["control"].iloc[0] == "none" else CONTROL
        sheet.text(box.left - 0.08, box.y(row), names[row], ha="right", fontsize=LABEL)
        known = shown["value"].dropna()
        if not len(known):
            sheet.text(box.left + 0.05, box.y(row), "N/A", color=TICK, fontsize=SMALL)
            continue
        readings = map(from_frame, shown["value"], shown["reason"])
        mean = over_seeds(zip(shown["seed"], readings, strict=True), "accuracy").mean
        if mean.value is not None:
            bar = [(box.x(mean.value), box.y(row + end)) for end in (-0.34, 0.34)]
            sheet.lines([bar], colour, linewidths=1.6, zorder=3)
        places = [box.x(value) for value in known]
        heights = [box.y(row)] * len(places)
        sheet.axes.plot(places, heights, "o", color=colour, mec="white", mew=0.6, markersize=5.2, zorder=4)
    return sheet.png([BAND], [PALETTE[0], CONTROL, LIMIT])


def _ground(sheet: Inches, box: Box, frame: pd.DataFrame) -> None:
    """Grid, the frozen band, the line with its name, and the axis."""
    for tick in MaxNLocator(nbins=6, steps=[1, 2, 5, 10]).tick_values(box.first, box.last):
        if box.first <= tick <= box.last:
            sheet.lines([[(box.x(tick), box.top), (box.x(tick), box.bottom)]], GRID, linewidths=0.7, zorder=0)
            sheet.text(box.x(tick), box.bottom + 0.11, f"{100 * tick:.4g}%", ha="center", color=TICK, fontsize=LABEL)
    sheet.text(box.left + box.width / 2, box.bottom + 0.29, "accuracy, whole test set", ha="center", fontsize=LABEL)
    frozen = frame.loc[frame["control"] == "frozen", "value"].dropna()
    if len(frozen):
        start, end = box.x(frozen.min()), box.x(frozen.max())
        width = max(end - start, 0.02)
        band = Rectangle((start, box.top), width, box.height, color=BAND, linewidth=0, zorder=1)
        sheet.axes.add_patch(band)
    line, rule, margin = (frame[name].iloc[0] for name in ("line", "rule", "margin"))
    if rule:
        at = box.x(line)
        sheet.lines([[(at, box.top - 0.05), (at, box.bottom)]], LIMIT, linewidths=1.1, linestyles=[LIMIT_DASH])
        side = "left" if at < box.left + 0.6 * box.width else "right"
        sheet.text(
            at,
            box.top - 0.14,
            f"frozen {filters.pp(margin)} ({rule}): {filters.pct(line)}",
            ha=side,
            color=LIMIT,
            fontsize=LABEL,
        )
