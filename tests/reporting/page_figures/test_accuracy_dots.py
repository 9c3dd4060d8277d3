"""Accuracy dots: every seed, the frozen band, and the line of the rule that asks for a margin."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Measurements, Reading
from fa_registry.reporting.figures.accuracy_dots import accuracy_numbers, accuracy_plate, draw
from fa_registry.reporting.figures.style import styled
from tests.reporting.page_figures.scenes import with_record, with_runs


def accuracies(report, reading):
    """The report with this accuracy in every run."""
    return with_runs(report, lambda run: with_record(run, measurements=Measurements({}, {"accuracy": reading})))


def test_the_line_is_the_frozen_mean_and_the_margin_of_the_rule(rich):
    frame = accuracy_numbers(groups(rich))
    frozen = frame.loc[frame["control"] == "frozen", "value"].mean()
    assert set(frame["rule"]) == {"D3"} and set(frame["margin"]) == {2.0}
    assert frame["line"].iloc[0] == pytest.approx(frozen + 0.02)
    assert len(frame) == len(rich.runs) and set(frame["run_id"]) == {run.record.run_id for run in rich.runs}


def test_without_frozen_controls_there_is_neither_line_nor_band(rich):
    alone = [group for group in groups(rich) if not group.control]
    with styled():
        plate = accuracy_plate(alone, 100)
    assert accuracy_numbers(alone)["line"].isna().all()
    assert "frozen" not in plate.caption and "dashed" not in plate.caption


def test_the_plate_says_what_it_shows(rich):
    with styled():
        plate = accuracy_plate(groups(rich), 100)
        assert plate == accuracy_plate(groups(rich), 100)
    assert "The dashed line is the frozen controls' mean +2.0" in plate.caption and "(D3): 82.0" in plate.caption
    assert "dfa 81.0\u00a0% to 84.0\u00a0%" in plate.alt and plate.columns == ("seed 42", "seed 123")
    drtp = next(group for group in plate.groups if group.name == "drtp")
    known, absent = drtp.rows[0].cells
    assert known.reading == Reading(0.84) and known.run_ids and absent.reading.reason == "this seed was not run"


def test_another_number_is_another_picture(report):
    frame = accuracy_numbers(groups(report))
    with styled():
        assert draw(frame, 100) != draw(frame.assign(value=frame["value"] / 2), 100)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.5])
def test_equal_accuracies_and_one_seed_can_be_drawn(report, value):
    single = dataclasses.replace(report, runs=report.runs[:1])
    with styled():
        for scene in (report, single):
            assert accuracy_plate(groups(accuracies(scene, Reading(value))), 100)


def test_runs_without_accuracy_have_no_figure_and_one_of_several_says_na(report):
    lost = Reading(None, "the test set is gone")
    first = report.runs[0].record.run_id
    some = with_runs(
        report,
        lambda run: (
            with_record(run, measurements=Measurements({}, {"accuracy": lost})) if run.record.run_id == first else run
        ),
    )
    with styled():
        assert accuracy_plate((), 100) is None
        assert accuracy_plate(groups(accuracies(report, lost)), 100) is None
        plate = accuracy_plate(groups(some), 100)
    assert plate.groups[0].rows[0].cells[0].reading == lost
