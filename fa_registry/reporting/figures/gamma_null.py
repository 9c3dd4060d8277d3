"""Figure of Γ at every site with its null, the Γ of fresh draws of the feedback."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.patches import Polygon, Rectangle

from fa_registry.metrics import NOT_CREDITED, over_seeds, symbol_of
from fa_registry.protocol.credit import exact_sites
from fa_registry.protocol.grouping import Group
from fa_registry.records import Reading, RunRecord
from fa_registry.reporting.figure_models import PageFigure
from fa_registry.reporting.figures.canvas import (
    ACROSS,
    CONTROL,
    GREY_BAND,
    GRID,
    INK,
    LEFT,
    MOST,
    NARROW,
    PALETTE,
    TICK,
    WIDTH,
    Canvas,
    PanelFrame,
    RenderedFigure,
    height_of,
    padded,
    small_multiples,
    ticks,
    whole_ticks,
)
from fa_registry.reporting.figures.frames import from_frame
from fa_registry.reporting.labels import group_label
from fa_registry.reporting.text import filters
from fa_registry.reporting.view_models import Number, Row

GAMMA = symbol_of("gamma")
TITLE = f"{GAMMA} of every site against its null"
DEVIATIONS = 2  # standard deviations of the null's draws in half the band
HEAD, PANEL = 0.5, 0.95  # inches
COLUMNS = ("method", "seed", "run_id", "site", "exact", "gamma", "low", "high", "reason", "no_null")

TYPES = {"exact": bool, **dict.fromkeys(("gamma", "low", "high"), float)}


def gamma_numbers(groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return one row per run and site, for the methods that have a null.

    Columns `low` and `high` are the mean of the null ± DEVIATIONS standard deviations of its draws. The plug-in cards list the
    sites where the credit is exact by construction.
    """
    runs = ((group_label(group), run.record) for group in groups if not group.control for run in group.runs)
    rows = [row for label, record in runs for row in _rows(label, record, cards)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(TYPES)
    with_null = frame.loc[frame["low"].notna() & ~frame["exact"], "method"]
    return frame[frame["method"].isin(set(with_null))].reset_index(drop=True)


def _rows(label: str, record: RunRecord, cards: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple]:
    measured = record.measurements.sites
    nulls = zip(measured.get("gamma_null_mean", ()), measured.get("gamma_null_std", ()), strict=True)
    values = measured.get("gamma", ())
    exact = exact_sites(cards.get(f"methods/{record.spec.method}", {}), len(values))
    for site, (gamma, (middle, deviation)) in enumerate(zip(values, nulls, strict=False)):
        if gamma.reason == NOT_CREDITED:
            continue
        has_null = middle.value is not None and deviation.value is not None
        ends = [middle.value + sign * DEVIATIONS * deviation.value for sign in (-1, 1)] if has_null else [math.nan] * 2
        reason = middle.reason or deviation.reason
        yield (label, record.spec.seed, record.run_id, site, site in exact, gamma.value, *ends, gamma.reason, reason)


def gamma_panel(
    groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]], width: float = WIDTH
) -> PageFigure | None:
    """Return the figure of one setting, or None if no method has a null."""
    numbers = gamma_numbers(groups, cards)
    if not len(numbers):
        return None
    methods = numbers["method"].nunique()
    caption = (
        f"{'Each panel is one method, and each dot' if methods > 1 else 'Each dot'} is one seed; the line is the mean over seeds. "
        "The grey band is the null: mean ± "
        f"{DEVIATIONS} standard deviations of {GAMMA} under fresh draws of the feedback, over all seeds. "
        f"{GAMMA} inside the band is no evidence of alignment. Site 0 is the output of the embedding, site l the output of block l."
    )
    exact = f" At a hollow dot, {GAMMA} = 1 by construction, so it is no evidence either."
    caption += exact if numbers["exact"].any() else ""
    measured = [run.record.measurements.sites.get("gamma") for group in groups for run in group.runs]
    if any(row and row[0].reason == NOT_CREDITED for row in measured):
        caption += f" Left out: {NOT_CREDITED}."
    caption += f" {methods - MOST} more methods are in the table." if methods > MOST else ""
    return PageFigure(
        TITLE,
        f"{TITLE}. Sites whose mean is outside the null band: {'; '.join(_in_text(numbers))}.",
        caption,
        draw(numbers, width),
        f"Mean {GAMMA} over seeds and the ends of the null band, by site",
        "Site",
        (GAMMA, "null from", "null to"),
        tuple(_table(numbers)),
    )


def _in_text(numbers: pd.DataFrame) -> Iterator[str]:
    for method, rows in numbers[~numbers["exact"]].groupby("method", sort=False):
        sites = _over_runs(rows)
        outside = sites[(sites["gamma"] < sites["low"]) | (sites["gamma"] > sites["high"])]
        yield f"{method} {', '.join(map(str, outside.index)) or 'none'}"


def _table(numbers: pd.DataFrame) -> Iterator[Row[Number]]:
    for method, rows in numbers.groupby("method", sort=False):
        ids = tuple(dict.fromkeys(rows["run_id"]))
        lines = []
        for site, (gamma, low, high, _) in _over_runs(rows).iterrows():
            of_site = rows[rows["site"] == site]
            readings = [_known(gamma, of_site["reason"]), *(_known(end, of_site["no_null"]) for end in (low, high))]
            lines.append(Row(str(site), tuple(Number(reading, "cos", ids) for reading in readings)))
        yield Row(str(method), rows=tuple(lines), run_ids=ids)


def _over_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per site: mean Γ, ends of the null band, and whether Γ is exact."""
    sites, means = rows.groupby("site").agg({"low": "min", "high": "max", "exact": "first"}), []
    for _, of_site in rows.groupby("site"):
        readings = map(from_frame, of_site["gamma"], of_site["reason"])
        means.append(over_seeds(zip(of_site["seed"], readings, strict=True), "gamma").mean.value)
    sites.insert(0, "gamma", pd.Series(means, sites.index, dtype=float))
    return sites


def _known(value: float, reasons: pd.Series) -> Reading:
    return from_frame(value, next(filter(None, reasons), "not measured"))


def draw(numbers: pd.DataFrame, width: float = WIDTH) -> RenderedFigure:
    """Draw the figure from the rows of `gamma_numbers`; the width NARROW draws one large panel per method."""
    across, high = (1, 1.2) if width == NARROW else (ACROSS, PANEL)
    methods = list(dict.fromkeys(numbers["method"]))[:MOST]
    canvas = Canvas(width, height_of(len(methods), HEAD, high, across))
    visible_rows = numbers[numbers["method"].isin(methods)]
    informative_rows = visible_rows[~visible_rows["exact"]]
    last = int(visible_rows["site"].max())
    ends = padded([*informative_rows["gamma"], *informative_rows["low"], *informative_rows["high"], 0.0], min_width=0.1)
    edges = (-0.35, max(last, 1) + 0.35, *ends)
    _key(canvas)
    axes = small_multiples(canvas, dict.fromkeys(methods, edges), HEAD, high, ("site l", GAMMA), across)
    for method, box, first in axes:
        canvas.lines([[(box.left, box.y(0)), (box.right, box.y(0))]], CONTROL, linewidths=0.8, zorder=1)
        for value in ticks(*ends, 5):
            canvas.lines([[(box.left, box.y(value)), (box.right, box.y(value))]], GRID, linewidths=0.7, zorder=0)
            if first:
                canvas.text(box.left - 0.05, box.y(value), filters.compact(value), ha="right", color=TICK)
        for site in whole_ticks(last):
            canvas.text(box.x(site), box.bottom + 0.09, str(site), ha="center", color=TICK)
        _panel(canvas, box, visible_rows[visible_rows["method"] == method])
    return canvas.rendered()


def _key(canvas: Canvas) -> None:
    y = 0.11
    canvas.dots([(LEFT + 0.05, y)], PALETTE[0])
    canvas.text(LEFT + 0.15, y, "one seed")
    canvas.lines([[(LEFT + 0.7, y), (LEFT + 0.95, y)]], PALETTE[0], linewidths=1.3)
    canvas.text(LEFT + 1.02, y, "mean")
    canvas.sheet.add_patch(Rectangle((LEFT + 1.4, y - 0.05), 0.2, 0.1, color=GREY_BAND, linewidth=0))
    canvas.text(LEFT + 1.67, y, "null: fresh feedback")


def _panel(canvas: Canvas, box: PanelFrame, rows: pd.DataFrame) -> None:
    sites = _over_runs(rows)
    band = sites[~sites["exact"]].dropna(subset=["low", "high"])
    if len(band):
        upper = [(box.x(site), box.y(high)) for site, high in band["high"].items()]
        lower = [(box.x(site), box.y(low)) for site, low in band["low"].items()]
        canvas.sheet.add_patch(Polygon([*upper, *lower[::-1]], closed=True, color=GREY_BAND, linewidth=0, zorder=1))
    informative_sites = sites[~sites["exact"]]
    line = [(box.x(site), box.y(gamma)) for site, gamma in informative_sites["gamma"].items()]
    canvas.lines([line], PALETTE[0], linewidths=1.3, zorder=3)
    dots = rows[~rows["exact"]].dropna(subset="gamma")
    positions = [(box.x(site), box.y(gamma)) for site, gamma in zip(dots["site"], dots["gamma"], strict=True)]
    canvas.dots(positions, PALETTE[0], zorder=4)
    for site in sites.index[sites["exact"]]:  # Γ = 1 is drawn at the edge, so the other values keep their scale
        canvas.sheet.plot(box.x(site), box.top + 0.05, "o", color=INK, mfc="white", mew=0.9, markersize=3.8)
    if not len(dots):
        canvas.text(box.left + box.width / 2, box.top + 0.3, "no number", ha="center", color=TICK)
