"""The numbers of the figures are the records' numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.protocol.rules import load_edition
from fa_registry.reporting.figures.trajectories import (
    PANELS,
    SHOWN_EPOCHS,
    curves,
    frozen_range,
    heights,
    limit,
    panels,
    table_epochs,
    table_rows,
    trajectory_numbers,
)

PANEL = {panel.quantity: panel for panel in PANELS}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.quantity)
def test_the_frame_holds_every_run_and_epoch_with_its_reason_where_there_is_no_number(report, panel):
    frame = trajectory_numbers(panel, groups(report))
    assert len(frame) == sum(len(run.record.trajectory[panel.quantity]) for run in report.runs)
    assert (frame["value"].isna() == (frame["reason"] != "")).all()
    for run in report.runs:
        rows = frame[frame["run_id"] == run.record.run_id]
        assert rows["value"].dropna().tolist() == [
            reading.value for reading in run.record.trajectory[panel.quantity] if reading.value is not None
        ]


def test_the_limits_are_the_editions_thresholds(report):
    thresholds = {rule.quantity: (rule.code, rule.threshold) for rule in load_edition("2026-05").rules}
    ordered = groups(report)
    assert limit(PANEL["growth_max"], ordered) == thresholds["growth"] == ("D1", 50.0)
    assert limit(PANEL["g_norm_mean_ce_L"], ordered) == thresholds["g_norm_mean_ce"] == ("D2", 1e-7)
    assert limit(PANEL["h_L"], ordered) is None
    assert limit(PANEL["accuracy"], ordered) is None


def test_the_per_sample_gradient_stands_in_where_the_mean_ce_was_not_followed(report):
    assert [panel.quantity for panel in panels(groups(report))] == ["h_L", "growth_max", "g_norm_mean_ce_L", "accuracy"]
    runs = tuple(
        dataclasses.replace(
            run,
            record=dataclasses.replace(
                run.record,
                trajectory={name: row for name, row in run.record.trajectory.items() if name != "g_norm_mean_ce_L"},
            ),
        )
        for run in report.runs
    )
    without = groups(dataclasses.replace(report, runs=runs))
    assert [panel.quantity for panel in panels(without)] == ["h_L", "growth_max", "g_L", "accuracy"]


def test_the_band_is_of_frozen_controls_alone(report):
    assert frozen_range(groups(report)) == (0.80, 0.81)
    assert frozen_range([group for group in groups(report) if not group.control]) is None


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.quantity)
def test_what_is_drawn_is_what_the_frame_holds(report, panel):
    ordered = groups(report)
    frame = trajectory_numbers(panel, ordered)
    drawn = {curve.run_id: curve.values for curve in curves(panel, ordered)}
    assert set(drawn) == set(frame["run_id"])
    for run_id, rows in frame.groupby("run_id"):
        np.testing.assert_array_equal(drawn[run_id], rows["value"].to_numpy())


def test_a_logarithmic_axis_has_no_place_for_what_is_not_positive():
    found = heights(PANEL["h_L"], np.array([100.0, 0.0, -1.0, np.nan]))
    assert found[0] == 2.0 and np.isnan(found[1:]).all()
    assert heights(PANEL["accuracy"], 0.0) == 0.0


def test_of_two_reference_gradients_the_judged_one_is_shown(report, rich):
    assert "g_norm_mean_ce_L" in [panel.quantity for panel in panels(groups(report))]
    judged = [panel.quantity for panel in panels(groups(rich))]
    assert "g_L" in judged and "g_norm_mean_ce_L" not in judged
    assert limit(PANEL["g_L"], groups(rich)) == ("D2", 1.28e-5)


def test_the_table_is_a_subsample_with_both_ends(report):
    ordered = groups(report)
    epochs = table_epochs(30)
    assert epochs[0] == 0 and epochs[-1] == 30 and len(epochs) == SHOWN_EPOCHS and list(epochs) == sorted(set(epochs))
    rows = table_rows(PANEL["h_L"], ordered, epochs)
    diverged = next(numbers for method, seed, numbers in rows if (method, seed) == ("dfa", 123))
    assert diverged[0].reading.value == 16.0 and diverged[-1].reading.not_finite


def test_no_run_gives_an_empty_frame():
    assert len(trajectory_numbers(PANELS[0], ())) == 0
    assert table_epochs(0) == (0,) and table_epochs(2) == (0, 1, 2)
