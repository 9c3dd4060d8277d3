"""Selection of the figures that fit on a page, and their captions and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from fa_registry.metrics import headline_of
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.replay_summary import series_sentence
from fa_registry.reporting.figure_models import FigurePanel, Picture, SettingFigures
from fa_registry.reporting.figures.accuracy_dots import accuracy_panel
from fa_registry.reporting.figures.canvas import NARROW, WIDTH
from fa_registry.reporting.figures.gamma_null import gamma_panel
from fa_registry.reporting.figures.heat_maps import layer_map, map_bytes
from fa_registry.reporting.figures.style import colours, styled
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

Figured = TypeVar("Figured", Picture, FigurePanel)
PAGE, LEAST_ROOM = 965_000, 360_000  # bytes of a whole page, and the minimum for its figures
NO_CARDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
# approximate sizes of the parts that the template writes, in bytes
FIGURE_BYTES, TABLE_BYTES, NUMBER_BYTES, ROW_BYTES = 420, 500, 26, 110
PANEL_BYTES, GROUP_BYTES, LINE_BYTES, CELL_BYTES = 700, 110, 45, 24


def setting_figures(
    groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]] = NO_CARDS, room: int = PAGE
) -> Truncated[SettingFigures]:
    """Return the figures of as many settings as fit on the page.

    First, every setting gets its trajectories and its accuracy figure. The first setting gets these figures even if they are
    too large. After that, figures by site are added while there is space. If a figure does not fit, its table of numbers is
    removed first, because audit.json contains the same numbers. A method has the same colour in all trajectories.

    Args:
        groups: The groups, ordered by setting.
        cards: The report's plug-in cards, which list the sites where Γ is exact.
        room: Maximum size of all figures in bytes.
    """
    shades = colours(groups)
    by_setting = groupby(groups, lambda group: group.runs[0].record.spec.setting.identity)
    settings = [list(members) for _, members in by_setting]
    drawable = [members for members in settings if panels(members) or _has_headline(members)]
    parts: list[SettingFigures] = []
    with styled():
        for members in drawable:
            pictures = tuple(_picture(panel, members, shades) for panel in panels(members))
            dots = tuple(filter(None, [accuracy_panel(members)]))
            fitting, room = _fitted((*pictures, *dots), room)
            if room < 0 and parts:
                break
            pictures_and_panels = fitting[: len(pictures)], fitting[len(pictures) :]
            parts.append(SettingFigures(members[0].setting, *pictures_and_panels))
        for index, members in enumerate(drawable[: len(parts)]):
            parts[index], room = _with_sites(parts[index], members, cards, room, len(parts) - index)
    return Truncated(tuple(parts), len(drawable))


def form_figures(
    group: Group, controls: Sequence[Group], cards: Mapping[str, Mapping[str, Any]]
) -> tuple[Picture | FigurePanel, ...]:
    """Return the small figures of a reporting form, without tables.

    The figures are the main metric with the range of the frozen controls, the largest growth with its limit, and Γ by site with its
    null. If the main metric was not measured by epoch, its figure has one dot per seed. A figure without any number is left out.
    """
    members, headline = [group, *controls], headline_of(group.runs[0].record.measurements).name
    shades = colours(members)
    by_epoch = {panel.quantity: panel for panel in panels(members)}
    with styled():
        names = (name for name in (headline, "growth_max") if name in by_epoch)
        trajectories = {name: _picture(by_epoch[name], members, shades, NARROW) for name in names}
        first = trajectories.pop(headline, None) or accuracy_panel(members, NARROW)
        figures = [first, *trajectories.values(), gamma_panel(members, cards, NARROW)]
    return tuple(map(_bare, filter(None, figures)))


def bytes_left(page: int) -> int:
    """Return the bytes for figures on a page, whose size without figures is `page` bytes."""
    return max(LEAST_ROOM, PAGE - page)


def _with_sites(
    part: SettingFigures,
    members: Sequence[Group],
    cards: Mapping[str, Mapping[str, Any]],
    room: int,
    settings_left: int,
) -> tuple[SettingFigures, int]:
    """Return the setting with the figures by site that fit, and the remaining bytes.

    The space for maps is shared by `settings_left` settings, including this setting.
    """
    if room <= 0:
        return replace(part, full=False), 0
    gamma = gamma_panel(members, cards)
    fitting_figures, remaining = _fitted([gamma] if gamma else [], room)
    if remaining < 0:
        return replace(part, full=False), 0
    by_epoch, heat_maps = layer_map(members, cards, remaining // settings_left)
    remaining -= map_bytes(by_epoch) if by_epoch else 0
    heat_maps, remaining = _fitted(heat_maps, remaining)
    full = bool(by_epoch or not heat_maps)
    figures = replace(part, plates=(*part.plates, *fitting_figures), map=by_epoch, heat_maps=heat_maps, full=full)
    return figures, max(remaining, 0)


def _fitted(figures: Sequence[Figured], room: int) -> tuple[tuple[Figured, ...], int]:
    remaining = room - sum(map(size_of, figures))
    if remaining >= 0:
        return tuple(figures), remaining
    without_tables = tuple(map(_bare, figures))
    return without_tables, room - sum(map(size_of, without_tables))


def _bare(figure: Figured) -> Figured:
    return replace(figure, rows=()) if isinstance(figure, Picture) else replace(figure, groups=())


def size_of(figure: Picture | FigurePanel) -> int:
    """Return the approximate size of a figure and its table on the page, in bytes."""
    image_size = len(figure.uri) + len(figure.alt.encode())
    if isinstance(figure, Picture):
        table = TABLE_BYTES + len(figure.rows) * (ROW_BYTES + NUMBER_BYTES * len(figure.epochs))
        return FIGURE_BYTES + image_size + table * bool(figure.rows)
    rows = [row for group in figure.groups for row in group.rows]
    ids = sum(GROUP_BYTES + len("".join(group.run_ids)) + len(group.name) for group in figure.groups)
    numbers = LINE_BYTES * len(rows) + CELL_BYTES * sum(len(row.cells) for row in rows)
    return PANEL_BYTES + image_size + len(figure.caption.encode()) + ids + numbers


def _has_headline(groups: Sequence[Group]) -> bool:
    measured = (run.record.measurements for group in groups for run in group.runs)
    return any(headline_of(measurements).name in measurements.scalars for measurements in measured)


def _picture(
    panel: Panel, groups: Sequence[Group], shades: Mapping[str, tuple[str, object]], width: float = WIDTH
) -> Picture:
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
    image = trajectory_figure(panel, groups, shades, width)
    return Picture(
        panel.title,
        _alternative(panel, groups),
        caption,
        image.uri,
        epochs,
        table_rows(panel, groups, epochs) if width == WIDTH else (),
        image,
    )


def _alternative(panel: Panel, groups: Sequence[Group]) -> str:
    runs = []
    for label, record in ((group_label(group), run.record) for group in groups for run in group.runs):
        if row := record.trajectory.get(panel.quantity, ()):
            first, last = (filters.reading(reading, panel.kind) for reading in (row[0], row[-1]))
            runs.append(f"{label} seed {record.spec.seed} from {first} to {last}")
    return f"{panel.title}, {panel.axis}, by epoch: {'; '.join(runs)}."
