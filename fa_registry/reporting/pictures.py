"""Figures as a page holds them: data URI, alt text, caption and their numbers, as many as the page has room for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np

from fa_registry.protocol.grouping import Group
from fa_registry.reporting import filters
from fa_registry.reporting.figures import DPI, DPI_OF_MANY, Sheet, colours, sheet
from fa_registry.reporting.naming import group_label
from fa_registry.reporting.page_figures.accuracy_dots import accuracy_plate
from fa_registry.reporting.page_figures.gamma_null import gamma_plate
from fa_registry.reporting.page_figures.heat_maps import heat_plates
from fa_registry.reporting.page_figures.plates import data_uri, size_of
from fa_registry.reporting.parts import Listed, Picture, SettingFigures
from fa_registry.reporting.trajectories import Panel, curves, heights, limit, panels, table_epochs, table_rows

# Bytes of a page for pictures and their numbers. What else it holds grows with the runs, until its lists are cut: so 125 runs
# in 17 settings stay below 1 MB, and an audit of few runs shows more.
LEAST_ROOM, MOST_ROOM, RUN_BYTES = 360_000, 780_000, 3_360
NO_CARDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
FEW = 4  # settings, of which the figures are drawn finer
NUMBER_BYTES, ROW_BYTES = 26, 110  # about, of a table of numbers as the template writes it


def setting_figures(
    groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]] = NO_CARDS, room: int | None = None
) -> Listed[SettingFigures]:
    """The figures, setting by setting until the page is full; a method keeps its colour over all trajectories.

    First every setting gets its trajectories and its accuracies, then what room is left goes to its figures site by site:
    what is missing is the end of the report. cards: the report's, which know where Γ is exact. room: bytes.
    """
    room = room_of(sum(len(group.runs) for group in groups)) if room is None else room
    shades = colours(groups)
    drawable = [members for members in _settings(groups) if panels(members) or _has_accuracy(members)]
    dpi = DPI if len(drawable) <= FEW else DPI_OF_MANY
    made: list[SettingFigures] = []
    with sheet(dpi) as drawn_on:
        for members in drawable:
            pictures = tuple(_picture(panel, members, shades, drawn_on) for panel in panels(members))
            plates = tuple(filter(None, [accuracy_plate(members, dpi)]))
            room -= sum(map(_bytes, pictures)) + sum(map(size_of, plates))
            if room < 0:
                break
            made.append(SettingFigures(members[0].setting, pictures, plates))
        for place, members in enumerate(drawable[: len(made)]):
            made[place], room = _with_sites(made[place], members, cards, dpi, room)
    return Listed(tuple(made), len(drawable))


def room_of(runs: int) -> int:
    """Bytes for the figures of a page about so many runs."""
    return max(LEAST_ROOM, MOST_ROOM - RUN_BYTES * runs)


def _with_sites(
    part: SettingFigures, members: Sequence[Group], cards: Mapping[str, Mapping[str, Any]], dpi: int, room: int
) -> tuple[SettingFigures, int]:
    """The part with as many of its figures site by site as fit, and the room that is left: none where one did not."""
    if room <= 0:
        return replace(part, full=False), 0
    fitting = list(part.plates)
    for plate in filter(None, [gamma_plate(members, dpi, cards), *heat_plates(members, dpi, cards)]):
        room -= size_of(plate)
        if room < 0:
            return replace(part, plates=tuple(fitting), full=False), 0
        fitting.append(plate)
    return replace(part, plates=tuple(fitting)), room


def _has_accuracy(groups: Sequence[Group]) -> bool:
    return any("accuracy" in run.record.measurements.scalars for group in groups for run in group.runs)


def _settings(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """The groups come setting by setting."""
    return (list(members) for _, members in groupby(groups, lambda group: group.runs[0].record.spec.setting.identity))


def _bytes(picture: Picture) -> int:
    numbers = len(picture.rows) * (ROW_BYTES + NUMBER_BYTES * len(picture.epochs))
    return len(picture.uri) + len(picture.alt.encode()) + numbers


def _picture(
    panel: Panel, groups: Sequence[Group], shades: Mapping[str, tuple[str, object]], drawn_on: Sheet
) -> Picture:
    lines = curves(panel, groups)
    epochs = table_epochs(max(len(line.values) for line in lines) - 1)
    caption = f"{panel.axis} by epoch. One colour a method, one line a seed"
    caption += ", logarithmic axis" if panel.log else "; the band is the range of the frozen controls' final accuracy"
    found = limit(panel, groups)
    caption += f"; the dashed line is the limit of {found[0]}, {filters.compact(found[1])}." if found else "."
    if any(np.isnan(heights(panel, line.values[-1])) for line in lines):
        caption += " A cross marks the last finite value of a run."
    return Picture(
        panel.title,
        _alternative(panel, groups),
        caption,
        data_uri(drawn_on.png(panel, groups, shades)),
        epochs,
        table_rows(panel, groups, epochs),
    )


def _alternative(panel: Panel, groups: Sequence[Group]) -> str:
    """The figure in words: where every run starts and ends."""
    runs = []
    for group in groups:
        for run in group.runs:
            row = run.record.trajectory.get(panel.quantity, ())
            if row:
                first, last = (filters.reading(reading, panel.kind) for reading in (row[0], row[-1]))
                runs.append(f"{group_label(group)} seed {run.record.spec.seed} from {first} to {last}")
    return f"{panel.title}, {panel.axis}, by epoch: {'; '.join(runs)}."
