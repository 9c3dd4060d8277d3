"""Figures as a page holds them: data URI, alt text, caption and their numbers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from fa_registry.protocol.grouping import Group
from fa_registry.reporting import filters
from fa_registry.reporting.figures import colours, trajectory_png
from fa_registry.reporting.parts import Picture, SettingFigures
from fa_registry.reporting.trajectories import Panel, limit, panels, table_epochs, table_rows, trajectory_numbers


def setting_figures(groups: Sequence[Group]) -> tuple[SettingFigures, ...]:
    """The trajectory figures of every setting that has any; a method keeps its colour over all of them."""
    shades = colours(groups)
    settings = dict.fromkeys(group.runs[0].record.spec.setting.identity for group in groups)
    made = []
    for setting in settings:
        members = [group for group in groups if group.runs[0].record.spec.setting.identity == setting]
        pictures = tuple(_picture(panel, members, shades) for panel in panels(members))
        if pictures:
            made.append(SettingFigures(members[0].setting, pictures))
    return tuple(made)


def _picture(panel: Panel, groups: Sequence[Group], shades: Mapping[str, tuple[str, object]]) -> Picture:
    frame = trajectory_numbers(panel, groups)
    epochs = table_epochs(frame)
    image = base64.b64encode(trajectory_png(panel, groups, shades)).decode("ascii")
    caption = f"{panel.axis} by epoch. One colour a method, one line a seed"
    caption += ", logarithmic axis" if panel.log else "; the band is the range of the frozen controls' final accuracy"
    found = limit(panel, groups)
    caption += f"; the dashed line is the limit of {found[0]}, {filters.compact(found[1])}." if found else "."
    if frame["value"].isna().any():
        caption += " A cross marks the last finite value of a run."
    return Picture(
        panel.title,
        _alternative(panel, groups),
        caption,
        f"data:image/png;base64,{image}",
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
                runs.append(f"{group.method} seed {run.record.spec.seed} from {first} to {last}")
    return f"{panel.title}, {panel.axis}, by epoch: {'; '.join(runs)}."
