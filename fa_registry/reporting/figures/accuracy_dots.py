"""Figure of the main metric, for example the accuracy, of every seed and method.

The figure also shows the range of the frozen controls and the limit that a method must pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from fa_registry.metrics import Headline, headlines_of, over_seeds
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.paired_runs import common_bigram, common_chance
from fa_registry.records import Reading
from fa_registry.reporting.figure_models import PageFigure
from fa_registry.reporting.figures.canvas import (
    BIGRAM_LOOK,
    CHANCE_LOOK,
    CONTROL,
    GREY_BAND,
    INK,
    LABEL,
    LIMIT,
    LIMIT_LOOK,
    PALETTE,
    SMALL,
    TICK,
    WIDTH,
    Canvas,
    RenderedFigure,
    padded,
    tick_text,
    ticks,
)
from fa_registry.reporting.figures.frames import from_frame
from fa_registry.reporting.figures.trajectories import limit
from fa_registry.reporting.labels import group_label, short_names
from fa_registry.reporting.report_values import Values
from fa_registry.reporting.text import filters
from fa_registry.reporting.view_models import Number, Row
from fa_registry.text_safety import escape_control

BIGRAM_TEXT = "dash-dotted line is the bigram entropy of the training text"
MOST, LETTERS = 30, 26  # methods in a figure, and characters of a name
ROW, TOP, BOTTOM = 0.2, 0.36, 0.42  # inches
COLUMNS = (
    "method",
    "control",
    "seed",
    "run_id",
    "value",
    "reason",
    "line",
    "rule",
    "margin",
    "chance",
    "bigram",
    "headline",
)


def accuracy_numbers(groups: Sequence[Group]) -> pd.DataFrame:
    """Return one row per run, in the order of the groups.

    Column `headline` is the headline of the task. Column `chance` is the value that guessing reaches, or NaN if it is unknown.
    Column `bigram` is the bigram entropy of the training text, or NaN if there is no text.
    Column `line` is the value that a rule requires: the mean of the frozen controls, improved by the required margin. The
    value is NaN if no rule requires a margin. Column `margin` is in the unit of the headline's margin.
    """
    headline = headlines_of(run.record for group in groups for run in group.runs)[0]
    rule, margin, line = _line(groups, headline)
    runs = [(group_label(group), run.record) for group in groups for run in group.runs]
    rows = [
        (label, record.spec.control, record.spec.seed, record.run_id, reading.value, reading.reason)
        for label, record in runs
        if (reading := record.measurements.scalars.get(headline.name)) is not None
    ]
    references = [common([record for _, record in runs]) for common in (common_chance, common_bigram)]
    frame = pd.DataFrame([(*row, line, rule, margin, *references, headline) for row in rows], columns=list(COLUMNS))
    return frame.astype({"seed": int, **dict.fromkeys(("value", "line", "margin", "chance", "bigram"), float)})


def _line(groups: Sequence[Group], headline: Headline) -> tuple[str, float, float]:
    """Return the tuple (rule, margin, required value of the main metric) of a margin rule."""
    controls = (run for group in groups for run in group.runs if run.record.spec.control == "frozen")
    frozen = Values().estimate(controls, headline.metric).mean.reading.value
    rule, threshold = limit(headline.margin, groups) or ("", math.nan)
    if frozen is None or not rule:
        return "", math.nan, math.nan
    return rule, threshold, frozen + headline.sign * threshold / headline.scale


def accuracy_panel(groups: Sequence[Group], width: float = WIDTH) -> PageFigure | None:
    """Return the figure of the main metric in one setting, or None if no run has a value."""
    frame = accuracy_numbers(groups)
    if frame["value"].isna().all():
        return None
    metric = _headline(frame).metric
    title = f"{metric.heading} of every seed"
    caption = f"Each dot is the {metric.symbol} of one seed on the whole test set; a bar shows the mean."
    caption += " The grey band is the range of the frozen controls." if (frame["control"] == "frozen").any() else ""
    line, rule = (frame[name].iloc[0] for name in ("line", "rule"))
    text = f"the mean of the frozen controls {_step(frame)} (limit of {rule}), {_value(frame, line)}" if rule else ""
    caption += f" The dashed line is {text}." if text else ""
    for name, look in (("chance", "dotted line is chance"), ("bigram", BIGRAM_TEXT)):
        level = frame[name].iloc[0]
        caption += f" The {look}, {_value(frame, level)}." if not math.isnan(level) else ""
    hidden = frame["method"].nunique() - MOST
    caption += f" {hidden} more methods are in the table." if hidden > 0 else ""
    return PageFigure(
        title,
        f"{title}: {'; '.join(_in_text(frame))}.{f' Dashed line: {text}.' if text else ''}",
        caption,
        draw(frame, width),
        f"{metric.heading} over the whole test set, one column per seed",
        columns=tuple(f"seed {seed}" for seed in _seeds(frame)),
        groups=_table(frame),
    )


def _headline(frame: pd.DataFrame) -> Headline:
    return frame["headline"].iloc[0]


def _value(frame: pd.DataFrame, value: float) -> str:
    return filters.KINDS[_headline(frame).kind](value)


def _step(frame: pd.DataFrame) -> str:
    """Return the required difference to the frozen controls as text, for example `+2.0 pp`."""
    headline = _headline(frame)
    return filters.KINDS[headline.margin_kind](headline.sign * frame["margin"].iloc[0])


def _seeds(frame: pd.DataFrame) -> list[int]:
    return sorted(frame["seed"].unique().tolist())


def _in_text(frame: pd.DataFrame) -> list[str]:
    text = []
    for method, rows in frame.groupby("method", sort=False):
        accuracies = rows["value"].dropna()
        ends = dict.fromkeys(_value(frame, end) for end in (accuracies.min(), accuracies.max()) if len(accuracies))
        text.append(f"{method} {' to '.join(ends) or 'N/A'}")
    return text


def _table(frame: pd.DataFrame) -> tuple[Row[Number], ...]:
    groups, kind = [], _headline(frame).kind
    absent = Number(Reading(None, "there is no run with this seed"), kind, ())
    for method, rows in frame.groupby("method", sort=False):
        first = rows.drop_duplicates("seed")
        readings = map(from_frame, first["value"], first["reason"])
        cells = zip(first["seed"], readings, first["run_id"], strict=True)
        numbers = {seed: Number(reading, kind, (run_id,)) for seed, reading, run_id in cells}
        row = Row("", tuple(numbers.get(seed, absent) for seed in _seeds(frame)))
        groups.append(Row(str(method), rows=(row,), run_ids=tuple(first["run_id"])))
    return tuple(groups)


def draw(frame: pd.DataFrame, width: float = WIDTH) -> RenderedFigure:
    """Draw the accuracy figure from the rows of `accuracy_numbers`."""
    methods = list(dict.fromkeys(frame["method"]))[:MOST]
    names = short_names(methods, LETTERS)
    left, high = 0.16 + 0.068 * max(map(len, names)), ROW * len(methods)
    canvas = Canvas(width, TOP + high + BOTTOM)
    axes = canvas.axes(left, TOP, width - left - 0.2, high)
    axes.set(
        xlim=padded([*frame["value"], *frame["line"], *frame["chance"], *frame["bigram"]], min_width=0.04),
        ylim=(len(methods) - 0.5, -0.5),
    )
    axes.set_yticks(range(len(methods)), map(escape_control, names), color=INK)
    tick_values, metric = ticks(*axes.get_xlim(), 6), _headline(frame).metric
    percent = metric.kind == "pct"
    axes.set_xticks(tick_values, [tick_text(tick, percent) for tick in tick_values])
    axes.set_xlabel(f"{metric.symbol}, whole test set" + ("" if percent else f", {metric.unit}"), fontsize=LABEL)
    axes.tick_params(length=0, labelsize=LABEL)
    axes.grid(visible=False, axis="y")
    axes.spines[:].set_visible(False)
    _ground(axes, frame)
    for row, method in enumerate(methods):
        method_rows = frame[frame["method"] == method]
        colour = PALETTE[0] if method_rows["control"].iloc[0] == "none" else CONTROL
        readings = map(from_frame, method_rows["value"], method_rows["reason"])
        mean = over_seeds(zip(method_rows["seed"], readings, strict=True), metric.name).mean
        if mean.value is not None:
            axes.plot([mean.value] * 2, [row - 0.34, row + 0.34], color=colour, linewidth=1.6, zorder=3)
        accuracies = method_rows["value"].dropna()
        axes.plot(
            accuracies, [row] * len(accuracies), "o", color=colour, mec="white", mew=0.6, markersize=5.2, zorder=4
        )
        if not len(accuracies):
            axes.text(0.01, row, "N/A", va="center", color=TICK, fontsize=SMALL, transform=axes.get_yaxis_transform())
    return canvas.rendered()


def _ground(axes: Axes, frame: pd.DataFrame) -> None:
    frozen = frame.loc[frame["control"] == "frozen", "value"].dropna()
    if len(frozen):
        axes.axvspan(frozen.min(), frozen.max(), facecolor=GREY_BAND, edgecolor=GREY_BAND, linewidth=1.4, zorder=1)
    line, rule = (frame[name].iloc[0] for name in ("line", "rule"))
    for name, look in (("chance", CHANCE_LOOK), ("bigram", BIGRAM_LOOK)):
        if not math.isnan(level := frame[name].iloc[0]):
            axes.axvline(level, **look, zorder=1)
    if rule:
        axes.axvline(line, **LIMIT_LOOK)
        text = f"frozen {_step(frame)} ({rule}): {_value(frame, line)}"
        low, high = axes.get_xlim()
        text_style = {"ha": "left" if line < low + 0.6 * (high - low) else "right", "va": "center", "fontsize": LABEL}
        position = {"xycoords": axes.get_xaxis_transform(), "xytext": (0, 10), "textcoords": "offset points"}
        axes.annotate(text, (line, 1), **position, **text_style, color=LIMIT)
