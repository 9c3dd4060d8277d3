"""Heat maps of growth, ‖g_l‖ and Γ by site and epoch.

Heat maps are drawn as figures for papers, and as the map of the page, in which the reader chooses a method and a seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle

from fa_registry.metrics import over_seeds, symbol_of
from fa_registry.protocol.credit import exact_sites, is_exact
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.replay_summary import series_sentence
from fa_registry.records import Reading, RunAudit
from fa_registry.reporting.figure_models import LayerMap, LayerPanel, MapCell, PageFigure
from fa_registry.reporting.figures.canvas import (
    FRAME,
    LEFT,
    LIMIT,
    MOST,
    TICK,
    WIDTH,
    Canvas,
    PanelFrame,
    RenderedFigure,
    height_of,
    small_multiples,
    whole_ticks,
)
from fa_registry.reporting.figures.frames import from_frame
from fa_registry.reporting.figures.trajectories import (
    GROWTH_LIMIT,
    REFERENCE,
    Panel,
    panel_limit,
    table_epochs,
)
from fa_registry.reporting.labels import group_label
from fa_registry.reporting.text import filters
from fa_registry.reporting.text.filters import compact
from fa_registry.reporting.view_models import Number, Row

HEAD, PANEL = 0.66, 0.78  # inches
COLUMNS = ("method", "site", "epoch", "value", "reason", "exact", "run_ids")


BY_SITE = (  # metrics of RunRecord.by_site
    Panel.named("growth", GROWTH_LIMIT),
    Panel.named("g_norm_mean_ce", title=REFERENCE, label=symbol_of("g_norm_mean_ce")),
    Panel.named("gamma", axis=f"{symbol_of('gamma')}, cosine of credit and gradient", label=symbol_of("gamma")),
)


def heat_numbers(panel: Panel, groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return the mean over seeds for each method, site and epoch.

    A missing value is NaN, and column `reason` contains the reason. Controls are left out. Methods whose credit is exact at all
    sites are left out too. The plug-in cards list the sites where Γ is exact by construction.
    """
    rows = [row for group in groups if not group.control for row in _rows(panel, group, cards)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"value": float, "exact": bool})
    is_informative = frame.groupby("method")["exact"].transform(lambda exact: not exact.all()) if len(frame) else []
    return frame[is_informative].reset_index(drop=True) if len(frame) else frame


def _rows(panel: Panel, group: Group, cards: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple]:
    runs = [run for run in group.runs if panel.quantity in run.record.by_site]
    if not runs:
        return
    label, method = group_label(group), runs[0].record.spec.method
    longest = max((run.record.by_site[panel.quantity] for run in runs), key=lambda series: series.epochs[-1])
    ids = " ".join(run.record.run_id for run in runs)
    exact = exact_sites(cards.get(f"methods/{method}", {}), len(longest.sites)) if panel.quantity == "gamma" else ()
    for site in range(len(longest.sites)):
        for epoch in longest.epochs:
            readings = [(run.record.spec.seed, reading_at(panel, run, site, epoch)) for run in runs]
            mean = over_seeds(readings, panel.quantity).mean
            yield (label, site, epoch, mean.value, mean.reason, site in exact, ids)


def reading_at(panel: Panel, run: RunAudit, site: int, epoch: int) -> Reading:
    """Return the value of a run at one site and epoch."""
    series = run.record.by_site[panel.quantity]
    if epoch not in series.epochs or site >= len(series.sites):
        return Reading(None, "this run was not measured at this site and epoch")
    return series.sites[site][series.epochs.index(epoch)]


def heat_panel(panel: Panel, numbers: pd.DataFrame, groups: Sequence[Group]) -> PageFigure:
    """Return the heat map of one metric in one setting, with its table.

    The argument `numbers` must contain at least one value.
    """
    rule = panel_limit(panel, groups)
    epochs = sorted(numbers["epoch"].unique().tolist())
    printed_epochs = [epochs[index] for index in table_epochs(len(epochs) - 1)]
    return PageFigure(
        _title(panel),
        f"{_title(panel)}, mean over seeds. {'; '.join(_in_text(panel, numbers))}.",
        f"{panel.axis}, mean over seeds.",
        draw(panel, numbers, rule[1] if rule else None),
        f"{panel.axis}, mean over seeds, at {len(printed_epochs)} of the {len(epochs)} epochs drawn",
        "Site",
        tuple(f"epoch {epoch}" for epoch in printed_epochs),
        tuple(_table(panel, numbers, printed_epochs)),
    )


def _nowhere(numbers: pd.DataFrame) -> pd.Series:
    """Return a mask of the rows whose site has no value at any epoch."""
    return numbers["value"].isna().groupby([numbers["method"], numbers["site"]]).transform("all")


def _in_text(panel: Panel, numbers: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence per method with the range of values in its last epoch."""
    for method, rows in numbers[~numbers["exact"]].groupby("method", sort=False):
        last = rows[rows["epoch"] == rows["epoch"].max()].dropna(subset="value")
        if not len(last):
            yield f"{method} has no number at its last epoch"
            continue
        top, low = (last.loc[last["value"].idxmax()], last.loc[last["value"].idxmin()])
        ends = [f"{filters.KINDS[panel.kind](row['value'])} at site {row['site']}" for row in (low, top)]
        yield f"{method} ends between {ends[0]} and {ends[1]}"


def _table(panel: Panel, numbers: pd.DataFrame, epochs: Sequence[int]) -> Iterator[Row[Number]]:
    visible_rows = numbers[~_nowhere(numbers) & numbers["epoch"].isin(epochs)]
    for method, rows in visible_rows.groupby("method", sort=False):
        ids = tuple(dict.fromkeys(rows["run_ids"].iloc[0].split()))
        sites = sorted(rows["site"].unique().tolist())
        means = zip(sites, _of_means(rows, sites, epochs), strict=True)
        lines = (Row(str(site), tuple(Number(mean, panel.kind, ids) for mean in row)) for site, row in means)
        yield Row(str(method), rows=tuple(lines), run_ids=ids)


def draw(panel: Panel, numbers: pd.DataFrame, threshold: float | None) -> RenderedFigure:
    """Draw a heat map from the rows of `heat_numbers`, with the threshold of the metric's rule."""
    methods = list(dict.fromkeys(numbers["method"]))[:MOST]
    visible_rows = numbers[numbers["method"].isin(methods)]
    sites = visible_rows[~_nowhere(visible_rows)]["site"]
    informative_values = visible_rows[~visible_rows["exact"]]["value"].dropna()
    scale = scale_of(panel, informative_values, threshold)
    canvas = Canvas(WIDTH, height_of(len(methods), HEAD, PANEL))
    bar(canvas, scale, panel.label, LEFT, 0.1)
    last = visible_rows.groupby("method")["epoch"].max()
    edges = {method: (0, max(last[method], 1), sites.min() - 0.5, sites.max() + 0.5) for method in methods}
    for method, box, first in small_multiples(canvas, edges, HEAD, PANEL, ("epoch", "site l")):
        of_method = visible_rows[visible_rows["method"] == method]
        _cells(canvas, box, of_method[of_method["site"].isin(set(sites))], scale)
        # aligned inwards, so that the labels of adjacent panels do not overlap
        for epoch, side in ((0, "left"), (int(box.last), "right")):
            canvas.text(box.x(epoch), box.bottom + 0.09, str(epoch), ha=side, color=TICK)
        for tick in whole_ticks(int(sites.max())):
            if first and tick >= sites.min():
                canvas.text(box.left - 0.05, box.y(tick), str(tick), ha="right", color=TICK)
    return canvas.rendered()


def _cells(canvas: Canvas, box: PanelFrame, rows: pd.DataFrame, scale: Scale) -> None:
    """Draw one cell per epoch and site, which extends halfway to the previous and to the next epoch."""
    epochs = np.array(sorted(rows["epoch"].unique()), dtype=float)
    edges = np.concatenate([[box.first], (epochs[1:] + epochs[:-1]) / 2, [box.last]])
    sides = {epoch: (box.x(edges[index]), box.x(edges[index + 1])) for index, epoch in enumerate(epochs)}
    fields, colours = [], []
    informative_rows = rows[~rows["exact"]]  # at the other sites, Γ = 1 by construction
    for site, epoch, value in zip(*(informative_rows[name] for name in ("site", "epoch", "value")), strict=True):
        (left, right), top, bottom = sides[epoch], box.y(site + 0.5), box.y(site - 0.5)
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        if value == value:
            fields.append(corners)
            colours.append(scale.colour(value))
        else:
            canvas.lines([[corners[0], corners[2]], [corners[1], corners[3]]], HATCH, linewidths=0.5)
    for site in sorted(set(rows.loc[rows["exact"], "site"])):
        canvas.text(box.left + box.width / 2, box.y(site), "exact", ha="center", color=TICK)
    # antialiased edges between cells would be visible as seams
    cells = PolyCollection(fields, facecolors=colours, linewidths=0, antialiaseds=False)
    canvas.sheet.add_collection(cells, autolim=False)


# Colours of heat maps, in steps that differ in lightness: readable in print and with any colour blindness.
WHITE, BLUE, DARK_BLUE = "#f4f8fb", "#4a97cc", "#00395c"
ORANGE, DARK_ORANGE, HATCH = "#ee9350", "#571c00", "#a9afb6"
STEPS, STEPS_BELOW = 6, 10  # colours of a ramp; colours of the ramp below a limit, which contains most cells
SIDES = ((ORANGE, DARK_ORANGE), (BLUE, DARK_BLUE))
LENGTH, THICK = 2.9, 0.11  # of the colour bar, in inches


@dataclass(frozen=True)
class Scale:
    """A colour scale: ascending edges of intervals, and one colour per interval.

    Each tick is (edge, label). If `logarithmic` is true, the edges are decimal logarithms. A rule fires above the edge `limit`.
    """

    edges: tuple[float, ...]
    colours: tuple[str, ...]
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool
    limit: float | None = None

    def position(self, edge: float) -> float:
        """Return the position of an edge on the colour bar, from 0 to 1."""
        return (edge - self.edges[0]) / (self.edges[-1] - self.edges[0])

    def colour(self, value: float) -> str:
        """Return the colour of a finite value; a value outside of the scale has the colour of the nearest end."""
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.edges[0]
        inner = self.edges[1:-1]
        return self.colours[sum(value > edge for edge in inner)]


def scale_of(panel: Panel, values: Iterable[float], threshold: float | None) -> Scale:
    """Return the colour scale of a metric: that of the growth, or that around 0."""
    return growth(values, threshold) if panel.log else signed(values)


def growth(values: Iterable[float], threshold: float | None) -> Scale:
    """Return the colours of the growth: blue below the threshold, orange above, where a rule fires."""
    logarithms = [math.log10(value) for value in values if value > 0] or [0.0]
    low = min(0.0, math.floor(10 * min(logarithms)) / 10)
    if threshold is None or threshold <= 0:
        return _logarithmic([(low, max(*logarithms, low + 0.3), WHITE, DARK_BLUE, 2 * STEPS)], None)
    log_threshold = math.log10(threshold)
    parts = [(min(low, log_threshold - 0.3), log_threshold, WHITE, BLUE, STEPS_BELOW)]
    if max(logarithms) > log_threshold:
        parts.append((log_threshold, max(*logarithms, log_threshold + 0.3), ORANGE, DARK_ORANGE, STEPS))
    return _logarithmic(parts, threshold)


def _logarithmic(parts: Sequence[tuple[float, float, str, str, int]], threshold: float | None) -> Scale:
    """Return a scale that joins several parts.

    Each part is the tuple (first edge, last edge, first colour, last colour, number of colours).
    """
    edges = [parts[0][0]]
    colours: list[str] = []
    for low, high, start, end, count in parts:
        edges += _even(low, high, count)[1:]
        colours += ramp(start, end, count)
    limit = None if threshold is None else math.log10(threshold)
    ends = [parts[0][0], *(part[1] for part in parts)]
    powers = ((edge, 10.0 ** min(edge, 308)) for edge in ends)
    ticks = [(edge, compact(threshold if edge == limit else float(f"{power:.2g}"))) for edge, power in powers]
    return Scale(tuple(edges), tuple(colours), tuple(ticks), logarithmic=True, limit=limit)


def signed(values: Iterable[float]) -> Scale:
    """Return a colour scale around 0: blue for positive values, orange for negative."""
    reach = max((abs(value) for value in values), default=0.0)
    reach = max(0.1, math.ceil(10 * reach) / 10)
    count = 2 * STEPS + 1  # the middle colour is centred on 0
    below, above = ((*ramp(WHITE, middle, 4)[1:], *ramp(middle, end, 4)[1:]) for middle, end in SIDES)
    colours = (*below[::-1], WHITE, *above)
    ticks = tuple((value, compact(value)) for value in (-reach, 0.0, reach))
    return Scale(_even(-reach, reach, count), colours, ticks, logarithmic=False)


def ramp(start: str, end: str, count: int) -> tuple[str, ...]:
    """Return `count` colours from `start` to `end`, including both."""
    return tuple(map(to_hex, np.linspace(to_rgb(start), to_rgb(end), count)))


def bar(canvas: Canvas, scale: Scale, text: str, left: float, top: float) -> None:
    """Draw the colour bar with labelled ticks and a line at the limit of the rule."""

    def at(edge: float) -> float:
        return left + LENGTH * scale.position(edge)

    for start, end, colour in zip(scale.edges, scale.edges[1:], scale.colours, strict=False):
        width = at(end) - at(start)
        canvas.sheet.add_patch(Rectangle((at(start), top), width, THICK, color=colour, linewidth=0, antialiased=False))
    canvas.sheet.add_patch(Rectangle((left, top), LENGTH, THICK, fill=False, edgecolor=FRAME, linewidth=0.6))
    for edge, label in scale.ticks:
        is_limit = edge == scale.limit
        label = f"limit {label}" if is_limit else label
        canvas.text(at(edge), top + THICK + 0.1, label, ha="center", color=LIMIT if is_limit else TICK)
    if scale.limit is not None:
        canvas.lines([[(at(scale.limit), top - 0.03), (at(scale.limit), top + THICK + 0.03)]], LIMIT, linewidths=1.3)
    canvas.text(left + LENGTH + 0.12, top + THICK / 2, text)


def _even(low: float, high: float, count: int) -> tuple[float, ...]:
    return tuple(np.linspace(low, high, count + 1).tolist())


TITLE = "Every site at every epoch"
MEAN = "mean of seeds"
MOST_CELLS = 1_500  # of the map of a setting; a larger map has only the means over seeds
BAR = 324  # width of the colour bar in the SVG of the template
NO_NUMBER, EXACT = "#d0d4d9", "#cbb9ea"  # fills of cells without a colour of the scale
EXACT_TITLE = "Γ = 1 by construction"
SEVERITY = ("control", "pass", "warn", "incomplete", "fail")  # outcomes of verdicts, the worst is last
Rows = Sequence[Sequence[Reading]]  # one row per visible site, one entry per epoch


def layer_map(
    groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]]
) -> tuple[LayerMap | None, tuple[PageFigure, ...]]:
    """Return the map of one setting and its heat maps for papers.

    Adjacent epochs with the same colour share a cell of the map. If the map has too many cells, it has only the means over seeds.

    Args:
        cards: The report's plug-in cards, which list the sites where Γ is exact by construction.

    Returns:
        The tuple (the map, the heat maps). The map is None if it has too many cells or no run was measured by site and epoch.
    """
    frames = {panel: heat_numbers(panel, groups, cards) for panel in BY_SITE}
    frames = {panel: numbers for panel, numbers in frames.items() if numbers["value"].notna().any()}
    heat_maps = tuple(heat_panel(panel, numbers, groups) for panel, numbers in frames.items())
    trained = [group for group in groups if not group.control]
    seeds = sorted({run.record.spec.seed for group in trained for run in group.runs})
    for shown in (seeds, []) if frames else ():
        shown_panels = tuple(
            _panel(panel, numbers, trained, shown, heat_map.alt, cards)
            for (panel, numbers), heat_map in zip(frames.items(), heat_maps, strict=True)
        )
        if sum(len(cells) for panel in shown_panels for row in panel.methods for cells in row) <= MOST_CELLS:
            names = MEAN, *(f"seed {seed}" for seed in shown)
            labels = tuple(map(group_label, trained))
            worst = max(trained, key=lambda group: (SEVERITY.index(group.verdict.outcome), len(group.verdict.flags)))
            opened = trained.index(worst)
            return LayerMap(TITLE, _caption(frames, groups), labels, names, shown_panels, opened), heat_maps
    return None, heat_maps


def _caption(frames: Mapping[Panel, pd.DataFrame], groups: Sequence[Group]) -> str:
    text = "Choose a method and a seed; the pointer over a cell shows its value."
    text += " All methods and seeds share the colours."
    text += " Adjacent epochs with the same colour share a cell."
    for panel in frames:
        rule = panel_limit(panel, groups)
        text += f" {panel.title}: orange beyond the limit of {rule[0]}, {filters.compact(rule[1])}." if rule else ""
        if not panel.log:
            text += " Γ: blue is positive, orange is negative, and purple is 1 by construction."
    text += " A grey cell has no number."
    return text + series_sentence([run.record.integrity for group in groups for run in group.runs])


def _title(panel: Panel) -> str:
    return f"{panel.title} by site and epoch"


def _panel(
    panel: Panel,
    numbers: pd.DataFrame,
    trained: Sequence[Group],
    seeds: Sequence[int],
    alt: str,
    cards: Mapping[str, Mapping[str, Any]],
) -> LayerPanel:
    epochs, sites = (sorted(set(one.tolist())) for one in (numbers["epoch"], numbers.dropna(subset="value")["site"]))
    means = dict(iter(numbers.groupby("method")))
    exact = {label: set(rows.loc[rows["exact"], "site"]) for label, rows in means.items()}
    readings: dict[tuple[str, int | None], Rows] = {
        (label, None): _of_means(rows, sites, epochs) for label, rows in means.items()
    }
    readings |= {
        (group_label(group), run.record.spec.seed): [
            [reading_at(panel, run, site, epoch) for epoch in epochs] for site in sites
        ]
        for group in trained
        for run in group.runs
        if run.record.spec.seed in seeds and group_label(group) in means and panel.quantity in run.record.by_site
    }
    informative = (
        reading.value
        for (label, _), rows in readings.items()
        for site, row in zip(sites, rows, strict=True)
        for reading in row
        if reading.value is not None and site not in exact[label]
    )
    rule = panel_limit(panel, trained)
    scale = scale_of(panel, [*informative], rule[1] if rule else None)

    def cells(group: Group, seed: int | None) -> tuple[MapCell, ...]:
        label = group_label(group)
        if (label, seed) not in readings:
            return (MapCell(0, 0, len(epochs), len(sites), *_why_absent(panel, group, seed, cards)),)
        return tuple(_map_cells(panel, readings[label, seed], sites, epochs, exact[label], scale))

    return LayerPanel(
        f"{panel.title}, {panel.label}" if panel.label != panel.title else panel.label,
        alt,
        tuple(epochs),
        tuple(sites),
        tuple(tuple(cells(group, seed) for seed in (None, *seeds)) for group in trained),
        *_colour_bar(scale),
    )


def _why_absent(
    panel: Panel, group: Group, seed: int | None, cards: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
    """Return colour and title of the only cell of a method and seed without numbers."""
    label, card = group_label(group), cards.get(f"methods/{group.runs[0].record.spec.method}", {})
    if panel.quantity == "gamma" and is_exact(card):
        return EXACT, f"{label}: {EXACT_TITLE}"
    has_run = seed is None or any(run.record.spec.seed == seed for run in group.runs)
    return NO_NUMBER, f"{label}: {'not measured by site and epoch' if has_run else 'no run with this seed'}"


def _colour_bar(scale: Scale) -> tuple[tuple[tuple[int, int, str], ...], tuple[tuple[int, str], ...]]:
    """Return the colours and the ticks of a LayerPanel."""

    def at(edge: float) -> int:
        return round(BAR * scale.position(edge))

    edges = zip(scale.edges, scale.edges[1:], scale.colours, strict=False)
    colours = tuple((at(start), at(end) - at(start), colour) for start, end, colour in edges)
    ticks = tuple((at(edge), f"limit {text}" if edge == scale.limit else text) for edge, text in scale.ticks)
    return colours, ticks


def _of_means(numbers: pd.DataFrame, sites: Sequence[int], epochs: Sequence[int]) -> Rows:
    readings = map(from_frame, numbers["value"], numbers["reason"])
    values = dict(zip(zip(numbers["site"], numbers["epoch"], strict=True), readings, strict=True))
    missing = Reading(None, "no run was measured at this site and epoch")
    return [[values.get((site, epoch), missing) for epoch in epochs] for site in sites]


def _map_cells(
    panel: Panel,
    rows: Rows,
    sites: Sequence[int],
    epochs: Sequence[int],
    exact: set[int],
    scale: Scale,
) -> Iterator[MapCell]:
    """Yield the cells of one method and seed; the first row of cells is the last site."""
    for y, (site, row) in enumerate(reversed([*zip(sites, rows, strict=True)])):
        if site in exact:
            yield MapCell(0, y, len(epochs), 1, EXACT, f"site {site}: {EXACT_TITLE}")
            continue
        fills = [NO_NUMBER if reading.value is None else scale.colour(reading.value) for reading in row]
        for fill, members in groupby(range(len(row)), fills.__getitem__):
            columns = list(members)
            title = f"site {site}, {_epochs(epochs, columns)}: {_values(panel, [row[x] for x in columns])}"
            yield MapCell(columns[0], y, len(columns), 1, fill, title)


def _epochs(epochs: Sequence[int], columns: Sequence[int]) -> str:
    first, last = epochs[columns[0]], epochs[columns[-1]]
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def _values(panel: Panel, readings: Sequence[Reading]) -> str:
    """Return the value of a cell, or its smallest and largest value, or the reason why there is no value."""
    values = sorted(reading.value for reading in readings if reading.value is not None)
    texts = dict.fromkeys(filters.KINDS[panel.kind](value) for value in (*values[:1], *values[-1:]))
    return " to ".join(texts) or readings[0].reason
