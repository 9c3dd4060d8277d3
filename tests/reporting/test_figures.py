"""Figures are the same bytes every time, leave matplotlib as it was, and survive any numbers."""

from __future__ import annotations

import dataclasses
import io
import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from fa_registry.protocol.grouping import groups
from fa_registry.records import Reading, Series
from fa_registry.reporting.figures.style import CONTROL, DPI_OF_MANY, PALETTE, colours
from fa_registry.reporting.figures.trajectories import PANELS, limit, sheet

PANEL = {panel.quantity: panel for panel in PANELS}


def trajectory_png(panel, groups_of_setting, shades):
    with sheet() as fresh:
        return fresh.png(panel, groups_of_setting, shades)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.quantity)
def test_the_same_numbers_give_the_same_bytes(report, panel):
    ordered = groups(report)
    assert trajectory_png(panel, ordered, colours(ordered)) == trajectory_png(panel, ordered, colours(ordered))


def test_a_used_sheet_draws_the_same_bytes_as_a_fresh_one(report):
    """Whatever was drawn on it before: other scales, more lines, more rows of legend, crosses."""
    ordered = groups(report)
    shades = colours(ordered)
    fresh = {panel.quantity: trajectory_png(panel, ordered, shades) for panel in PANELS}
    few = [group for group in ordered if group.method == "bp"]
    many = [*ordered, *(dataclasses.replace(ordered[0], method=f"m{index}") for index in range(7))]
    with sheet() as one:
        for panel in (*PANELS, *reversed(PANELS)):
            one.png(panel, few, shades)
            one.png(PANEL["accuracy"], many, colours(many))
            assert one.png(panel, ordered, shades) == fresh[panel.quantity], panel.quantity


def test_the_picture_carries_no_metadata_and_is_small(report):
    ordered = groups(report)
    png = trajectory_png(PANEL["h_L"], ordered, colours(ordered))
    assert Image.open(io.BytesIO(png)).info == {}
    assert len(png) < 25_000


def test_matplotlib_is_left_as_it_was(report):
    ordered = groups(report)
    with matplotlib.rc_context({"lines.linewidth": 7.0, "font.size": 31.0}):
        before = dict(matplotlib.rcParams)
        trajectory_png(PANEL["h_L"], ordered, colours(ordered))
        assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_the_users_own_settings_do_not_change_the_picture(report):
    ordered = groups(report)
    plain = trajectory_png(PANEL["accuracy"], ordered, colours(ordered))
    with matplotlib.rc_context(
        {"lines.linewidth": 9.0, "axes.facecolor": "red", "savefig.dpi": 30, "figure.facecolor": "blue"}
    ):
        assert trajectory_png(PANEL["accuracy"], ordered, colours(ordered)) == plain


def test_methods_keep_their_colour_and_controls_are_grey(report):
    ordered = groups(report)
    shades = colours(ordered)
    assert [shades[name][0] for name in ("bp", "dfa", "frozen")] == [PALETTE[0], PALETTE[1], CONTROL]
    many = [dataclasses.replace(ordered[0], method=f"m{index}") for index in range(2 * len(PALETTE))]
    assert len(set(colours(many).values())) == 2 * len(PALETTE)


def test_the_line_has_the_methods_colour(report):
    ordered = [group for group in groups(report) if group.method == "dfa"]
    png = trajectory_png(PANEL["h_L"], ordered, {"dfa": ("#00ff00", "-")})
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)
    green = (pixels[..., 1] > 200) & (pixels[..., 0] < 90) & (pixels[..., 2] < 90)
    assert green.sum() > 200
    curve = green[30:]  # below the legend
    rows, columns = (np.flatnonzero(curve.any(axis=axis)) / curve.shape[axis - 1] for axis in (1, 0))
    assert columns.min() < 0.2 and columns.max() > 0.93 and rows.min() < 0.1 and rows.max() > 0.75  # all of it in view


@pytest.mark.parametrize(
    "values",
    [
        (Reading.of(float("inf")),) * 4,
        (Reading(0.0),) * 4,
        (Reading(1.0),),
        (Reading(1e-300), Reading(1e300)),
    ],
    ids=["nothing finite", "zeros", "one point", "the whole range"],
)
@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel.log], ids=lambda panel: panel.quantity)
def test_any_numbers_can_be_drawn(report, panel, values):
    run = report.runs[0]
    spec = dataclasses.replace(run.record.spec, method="$\\frac{$")
    record = dataclasses.replace(run.record, spec=spec, trajectory={panel.quantity: Series(values)})
    ordered = groups(dataclasses.replace(report, runs=(dataclasses.replace(run, record=record),)))
    assert trajectory_png(panel, ordered, colours(ordered)).startswith(b"\x89PNG")


def test_a_limit_without_a_place_on_the_axis_is_no_obstacle(report):
    ordered = groups(report)
    zero = [
        dataclasses.replace(
            group,
            runs=tuple(
                dataclasses.replace(
                    run, findings=tuple(dataclasses.replace(one, threshold=0.0) for one in run.findings)
                )
                for run in group.runs
            ),
        )
        for group in ordered
    ]
    assert limit(PANEL["growth_max"], zero) == ("D1", 0.0)
    assert trajectory_png(PANEL["growth_max"], zero, colours(zero)).startswith(b"\x89PNG")


def test_figures_of_a_page_with_many_are_drawn_coarser(report):
    ordered = groups(report)
    with sheet(DPI_OF_MANY) as coarse:
        small = coarse.png(PANEL["h_L"], ordered, colours(ordered))
    assert len(small) < len(trajectory_png(PANEL["h_L"], ordered, colours(ordered)))
