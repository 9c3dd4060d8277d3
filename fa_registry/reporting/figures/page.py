"""Selection of the figures of a page, and their captions and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import Any

import numpy as np

from fa_registry.metrics import headline_of
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.replay_summary import series_sentence
from fa_registry.reporting.claims_reference import GAMMA
from fa_registry.reporting.figure_models import PageFigure, SettingFigures
from fa_registry.reporting.figures.accuracy_dots import accuracy_panel
from fa_registry.reporting.figures.canvas import NARROW, WIDTH, colours, styled
from fa_registry.reporting.figures.gamma_null import gamma_panel
from fa_registry.reporting.figures.heat_maps import layer_map
from fa_registry.reporting.figures.trajectories import (
    Panel,
    curves,
    heights,
    panel_limit,
    panels,
    table_epochs,
    table_rows,
    trajectory_figure,
)
from fa_registry.reporting.labels import group_label
from fa_registry.reporting.text import filters
from fa_registry.reporting.view_models import Truncated

# a page shows the figures of so many settings and runs, so that it stays below 1 MB; the first setting is always shown
MOST_SETTINGS = 4
MOST_RUNS = 45
MOST_NUMBERS = 600  # in the table of a figure; audit.json contains all numbers
NO_CARDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def setting_figures(
    groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]] = NO_CARDS
) -> Truncated[SettingFigures]:
    """Return the figures of the first MOST_SETTINGS settings with at most MOST_RUNS runs in total.

    A method has the same colour in all trajectories.

    Args:
        groups: The groups, ordered by setting.
        cards: The report's plug-in cards, which list the sites where Γ is exact.
    """
    shades = colours(groups)
    by_setting = groupby(groups, lambda group: group.runs[0].record.spec.setting.identity)
    settings = [list(members) for _, members in by_setting]
    drawable = [members for members in settings if panels(members) or _has_headline(members)]
    counts = accumulate(sum(len(group.runs) for group in members) for members in drawable)
    fitting = sum(count <= MOST_RUNS for count in counts)
    with styled():
        shown = [_of_setting(members, cards, shades) for members in drawable[: min(max(1, fitting), MOST_SETTINGS)]]
    return Truncated(tuple(shown), len(drawable))


def form_figures(
    group: Group, controls: Sequence[Group], cards: Mapping[str, Mapping[str, Any]], growth: str = "growth_max"
) -> dict[str, PageFigure]:
    """Return the small figures of a reporting form, without tables: topic of a tile → figure.

    The figures are Γ by site with its null, the main metric with the range of the frozen controls, and the metric `growth` with its
    limit. If the main metric was not measured by epoch, its figure has one dot per seed. A figure without any number is left out.
    """
    members, headline = [group, *controls], headline_of(group.runs[0].record.measurements).name
    shades = colours(members)
    by_epoch = {panel.quantity: panel for panel in panels(members)}
    with styled():
        names = (name for name in (headline, growth) if name in by_epoch)
        trajectories = {name: _trajectory(by_epoch[name], members, shades, NARROW) for name in names}
        figures = {
            GAMMA: gamma_panel(members, cards, NARROW),
            "Depth": trajectories.get(headline) or accuracy_panel(members, NARROW),
            "Scale": trajectories.get(growth),
        }
    return {topic: replace(figure, groups=()) for topic, figure in figures.items() if figure}


def _of_setting(
    members: Sequence[Group], cards: Mapping[str, Mapping[str, Any]], shades: Mapping[str, tuple[str, object]]
) -> SettingFigures:
    by_epoch = [_trajectory(panel, members, shades) for panel in panels(members)]
    figures = (*by_epoch, accuracy_panel(members), gamma_panel(members, cards))
    found, heat_maps = layer_map(members, cards)
    return SettingFigures(
        members[0].setting,
        tuple(_without_long_table(figure) for figure in figures if figure),
        found,
        tuple(map(_without_long_table, heat_maps)),
    )


def _without_long_table(figure: PageFigure) -> PageFigure:
    numbers = sum(len(row.cells) for group in figure.groups for row in group.rows)
    return figure if numbers <= MOST_NUMBERS else replace(figure, groups=())


def _has_headline(groups: Sequence[Group]) -> bool:
    measured = (run.record.measurements for group in groups for run in group.runs)
    return any(headline_of(measurements).name in measurements.scalars for measurements in measured)


def _trajectory(
    panel: Panel, groups: Sequence[Group], shades: Mapping[str, tuple[str, object]], width: float = WIDTH
) -> PageFigure:
    lines = curves(panel, groups)
    epochs = table_epochs(max(len(values) for _, values in lines) - 1)
    band = "; the band is the range of the frozen controls at their last epoch"
    caption = f"{panel.axis} by epoch. One colour per method, one" if width == WIDTH else "One"
    caption += f" line per seed{', logarithmic axis' if panel.log else band}"
    rule = panel_limit(panel, groups)
    caption += f"; the dashed line is the limit of {rule[0]}, {filters.compact(rule[1])}." if rule else "."
    if any(np.isnan(heights(panel, values[-1])) for _, values in lines):
        caption += " A cross marks the last finite value of a run."
    caption += series_sentence([run.record.integrity for group in groups for run in group.runs])
    return PageFigure(
        panel.title,
        _alternative(panel, groups),
        caption,
        trajectory_figure(panel, groups, shades, width),
        f"{panel.title} at {len(epochs)} evenly spread epochs",
        "Seed",
        tuple(f"epoch {epoch}" for epoch in epochs),
        tuple(table_rows(panel, groups, epochs)),
    )


def _alternative(panel: Panel, groups: Sequence[Group]) -> str:
    runs = []
    for label, record in ((group_label(group), run.record) for group in groups for run in group.runs):
        if row := record.trajectory.get(panel.quantity, ()):
            first, last = (filters.reading(reading, panel.kind) for reading in (row[0], row[-1]))
            runs.append(f"{label} seed {record.spec.seed} from {first} to {last}")
    return f"{panel.title}, {panel.axis}, by epoch: {'; '.join(runs)}."
