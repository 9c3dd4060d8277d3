"""The numbers of the figures are the records' numbers."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.protocol.rules import load_edition
from fa_registry.reporting.trajectories import (
    PANELS,
    frozen_numbers,
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
    frame = frozen_numbers(groups(report))
    assert sorted(frame["accuracy"]) == [0.80, 0.81]
    assert set(frame["run_id"]) == {run.record.run_id for run in report.runs if run.record.spec.control == "frozen"}


def test_the_table_is_a_subsample_with_both_ends(report):
    ordered = groups(report)
    epochs = table_epochs(trajectory_numbers(PANEL["h_L"], ordered))
    assert epochs[0] == 0 and epochs[-1] == 30 and len(epochs) == 9 and list(epochs) == sorted(set(epochs))
    rows = table_rows(PANEL["h_L"], ordered, epochs)
    diverged = next(numbers for method, seed, numbers in rows if (method, seed) == ("dfa", 123))
    assert diverged[0].reading.value == 16.0 and diverged[-1].reading.not_finite


def test_no_run_gives_an_empty_frame():
    assert len(trajectory_numbers(PANELS[0], ())) == 0
    assert table_epochs(trajectory_numbers(PANELS[0], ())) == (0,)
