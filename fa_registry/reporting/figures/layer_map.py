"""Map of growth, ‖g_l‖ and Γ by site and epoch, for every method and seed.

Every cell is a rectangle of an SVG, and its value is the title that a browser shows at the pointer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from fa_registry.protocol.credit import is_exact
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.replay_summary import series_sentence
from fa_registry.records import Reading
from fa_registry.reporting.figure_models import FigurePanel, LayerMap, LayerPanel, MapCell
from fa_registry.reporting.figures.frames import from_frame
from fa_registry.reporting.figures.heat_maps import (
    BY_SITE,
    BY_SITE_AND_EPOCH,
    Scale,
    heat_numbers,
    heat_panel,
    reading_at,
    scale_of,
    visible_sites,
)
from fa_registry.reporting.figures.trajectories import Panel, limit
from fa_registry.reporting.labels import group_label
from fa_registry.reporting.text import filters

TITLE = "Every site at every epoch"
MEAN = "mean of seeds"
CELL, FRAME_BYTES = 96, 3_000  # bytes of a rectangle with its title; of the rest of the map
BAR = 324  # width of the colour bar in the SVG of the template
NO_NUMBER, EXACT = "#d0d4d9", "#cbb9ea"  # fills of cells without a colour of the scale
EXACT_TITLE = "Γ = 1 by construction"
Rows = Sequence[Sequence[Reading]]  # one row per visible site, one entry per epoch


def layer_map(
    groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]], room: int
) -> tuple[LayerMap | None, tuple[FigurePanel, ...]]:
    """Return the map of one setting and its heat maps for papers.

    If the map is too large with one cell per epoch, adjacent epochs with the same colour share a cell. If the map is still too
    large, it has only the means over seeds.

    Args:
        cards: The report's plug-in cards, which list the sites where Γ is exact by construction.
        room: Maximum size of the map in bytes.

    Returns:
        The tuple (the map, the heat maps). The map is None if it does not fit or no run was measured by site and epoch.
    """
    frames = {panel: heat_numbers(panel, groups, cards) for panel in BY_SITE}
    frames = {panel: numbers for panel, numbers in frames.items() if numbers["value"].notna().any()}
    heat_maps = tuple(heat_panel(panel, numbers, groups) for panel, numbers in frames.items())
    trained = [group for group in groups if not group.control]
    seeds = sorted({run.record.spec.seed for group in trained for run in group.runs})
    for shown, joined in ((seeds, False), (seeds, True), ([], True)):
        cells = sum(len(numbers) for numbers in frames.values()) * (len(shown) + 1)
        if not frames or (not joined and cells * CELL > room):
            continue
        found = LayerMap(
            TITLE,
            _caption(frames, groups, joined),
            tuple(map(group_label, trained)),
            (MEAN, *(f"seed {seed}" for seed in shown)),
            tuple(
                _panel(panel, numbers, trained, shown, joined, heat_map.alt, cards)
                for (panel, numbers), heat_map in zip(frames.items(), heat_maps, strict=True)
            ),
        )
        if map_bytes(found) <= room:
            return found, heat_maps
    return None, heat_maps


def map_bytes(found: LayerMap) -> int:
    """Return the approximate size of a map on the page, in bytes."""
    return FRAME_BYTES + CELL * sum(len(cells) for panel in found.panels for seeds in panel.methods for cells in seeds)


def _caption(frames: Mapping[Panel, pd.DataFrame], groups: Sequence[Group], joined: bool) -> str:
    text = (
        "Choose a method and a seed; the pointer over a cell shows its value. All methods and seeds share the colours."
    )
    text += " Adjacent epochs with the same colour share a cell." if joined else ""
    for panel in frames:
        rule = limit(panel.judged, groups)
        text += f" {_name(panel)}: orange beyond the limit of {rule[0]}, {filters.compact(rule[1])}." if rule else ""
        if not panel.log:
            text += " Γ: blue is positive, orange is negative, and purple is 1 by construction."
    text += " A grey cell has no number."
    return text + series_sentence([run.record.integrity for group in groups for run in group.runs])


def _name(panel: Panel) -> str:
    return panel.title.removesuffix(BY_SITE_AND_EPOCH)


def _panel(
    panel: Panel,
    numbers: pd.DataFrame,
    trained: Sequence[Group],
    seeds: Sequence[int],
    joined: bool,
    alt: str,
    cards: Mapping[str, Mapping[str, Any]],
) -> LayerPanel:
    epochs, sites = sorted(numbers["epoch"].unique().tolist()), visible_sites(numbers)
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
    rule = limit(panel.judged, trained)
    scale = scale_of(panel, [*informative], rule[1] if rule else None)

    def cells(group: Group, seed: int | None) -> tuple[MapCell, ...]:
        label = group_label(group)
        if (label, seed) not in readings:
            return (MapCell(0, 0, len(epochs), len(sites), *_why_absent(panel, group, seed, cards)),)
        return tuple(_cells(panel, readings[label, seed], sites, epochs, exact[label], scale, joined))

    return LayerPanel(
        f"{_name(panel)}, {panel.label}" if panel.label != _name(panel) else panel.label,
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
    low, high = scale.edges[0], scale.edges[-1]

    def at(edge: float) -> int:
        return round(BAR * (edge - low) / (high - low))

    edges = zip(scale.edges, scale.edges[1:], scale.colours, strict=False)
    colours = tuple((at(start), at(end) - at(start), colour) for start, end, colour in edges)
    ticks = tuple((at(edge), f"limit {text}" if edge == scale.limit else text) for edge, text in scale.ticks)
    return colours, ticks


def _of_means(numbers: pd.DataFrame, sites: Sequence[int], epochs: Sequence[int]) -> Rows:
    values = {
        (site, epoch): from_frame(value, reason)
        for site, epoch, value, reason in zip(
            numbers["site"], numbers["epoch"], numbers["value"], numbers["reason"], strict=True
        )
    }
    missing = Reading(None, "no run was measured at this site and epoch")
    return [[values.get((site, epoch), missing) for epoch in epochs] for site in sites]


def _cells(
    panel: Panel,
    rows: Rows,
    sites: Sequence[int],
    epochs: Sequence[int],
    exact: set[int],
    scale: Scale,
    joined: bool,
) -> Iterator[MapCell]:
    """Yield the cells of one method and seed; the first row of cells is the last site."""
    for y, (site, row) in enumerate(reversed([*zip(sites, rows, strict=True)])):
        if site in exact:
            yield MapCell(0, y, len(epochs), 1, EXACT, f"site {site}: {EXACT_TITLE}")
            continue
        fills = [NO_NUMBER if reading.value is None else scale.colour(reading.value) for reading in row]
        for (fill, _), members in groupby(range(len(row)), lambda x, fills=fills: (fills[x], 0 if joined else x)):
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
