"""Accuracy dots: every seed, the frozen band, and the line of the rule that asks for a margin."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Measurements, Reading
from fa_registry.reporting.figures.accuracy_dots import accuracy_numbers, accuracy_panel, draw
from fa_registry.reporting.figures.canvas import padded, styled, whole_ticks
from fa_registry.reporting.figures.gamma_null import gamma_numbers, gamma_panel
from tests.reporting.report_changes import with_record, with_runs


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
        panel = accuracy_panel(alone)
    assert accuracy_numbers(alone)["line"].isna().all()
    assert "frozen" not in panel.caption and "dashed" not in panel.caption


def test_the_panel_says_what_it_shows(rich):
    with styled():
        panel = accuracy_panel(groups(rich))
        assert panel == accuracy_panel(groups(rich))
    assert "frozen controls +2.0" in panel.caption and "(limit of D3), 82.0" in panel.caption
    assert "81.0\u00a0% to 84.0" in panel.alt and panel.columns == ("seed 42", "seed 123")
    drtp = next(group for group in panel.groups if group.name == "drtp")
    known, absent = drtp.rows[0].cells
    assert known.reading == Reading(0.84) and known.run_ids and absent.reading.value is None


def test_another_number_is_another_picture(report):
    frame = accuracy_numbers(groups(report))
    with styled():
        assert draw(frame) != draw(frame.assign(value=frame["value"] / 2))


@pytest.mark.parametrize("value", [0.0, 1.0, 0.5])
def test_equal_accuracies_and_one_seed_can_be_drawn(report, value):
    single = dataclasses.replace(report, runs=report.runs[:1])
    with styled():
        for scene in (report, single):
            assert accuracy_panel(groups(accuracies(scene, Reading(value))))


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
        assert accuracy_panel(()) is None
        assert accuracy_panel(groups(accuracies(report, lost))) is None
        panel = accuracy_panel(groups(some))
    assert panel.groups[0].rows[0].cells[0].reading == lost


def test_the_dataframe_has_gamma_and_two_deviations_around_the_null(rich):
    frame = gamma_numbers(groups(rich), rich.cards)
    run = next(run for run in rich.runs if run.record.spec.method == "dfa")
    sites = run.record.measurements.sites
    row = frame[(frame["run_id"] == run.record.run_id) & (frame["site"] == 3)].iloc[0]
    assert row["gamma"] == sites["gamma"][3].value
    middle, deviation = (sites[name][3].value for name in ("gamma_null_mean", "gamma_null_std"))
    assert (row["low"], row["high"]) == (pytest.approx(middle - 2 * deviation), pytest.approx(middle + 2 * deviation))
    assert "frozen" not in set(frame["method"])


def test_methods_without_a_null_are_left_out(rich, report):
    assert gamma_panel(groups(report), report.cards) is None and gamma_panel((), {}) is None
    absent = (Reading(None, "no feedback that could be newly drawn"),) * 5

    def without(run):
        sites = {**run.record.measurements.sites, "gamma_null_mean": absent, "gamma_null_std": absent}
        return with_record(run, measurements=Measurements(sites, {})) if run.record.spec.method == "bp" else run

    frame = gamma_numbers(groups(with_runs(rich, without)), rich.cards)
    assert set(frame["method"]) == {"fa", "dfa", "drtp"}


def outside(panel, method: str) -> list[str]:
    """The sites of a method outside of its null, as the text of the picture lists them."""
    return re.search(rf"\b{method} (\d(?:, \d)*)", panel.alt).group(1).split(", ")


def test_the_panel_says_which_sites_are_outside(rich):
    with styled():
        panel = gamma_panel(groups(rich), rich.cards)
        assert panel == gamma_panel(groups(rich), rich.cards)
    assert outside(panel, "fa") == ["0", "1", "2", "3", "4"]
    group = panel.groups[0]
    assert [line.name for line in group.rows] == ["0", "1", "2", "3", "4"]
    assert all(len(line.cells) == 3 and line.cells[0].run_ids == group.run_ids for line in group.rows)
    assert "is no evidence" in panel.caption


def test_what_is_exact_by_construction_is_marked_and_not_judged(rich):
    cards = {"methods/fa": {"exact_sites": "last"}}
    with styled():
        panel = gamma_panel(groups(rich), cards)
    assert "hollow dot" in panel.caption and outside(panel, "fa") == ["0", "1", "2", "3"]


@pytest.mark.parametrize("length", [0, 1, 40])
@pytest.mark.parametrize("gamma", [Reading(0.0), Reading(-1.0), Reading.of(float("nan"))], ids=str)
def test_any_numbers_and_depths_can_be_drawn(rich, length, gamma):
    null = {"gamma_null_mean": (Reading(0.0),) * length, "gamma_null_std": (Reading(0.02),) * length}
    measured = Measurements({"gamma": (gamma,) * length, **null}, {})
    scene = with_runs(rich, lambda run: with_record(run, measurements=measured))
    single = dataclasses.replace(scene, runs=scene.runs[:1])
    with styled():
        for one in (scene, single):
            assert (gamma_panel(groups(one), {}) is None) == (length == 0)


@pytest.mark.parametrize(("last", "ticks"), [(0, [0]), (4, [0, 1, 2, 3, 4]), (24, [0, 6, 12, 18, 24]), (5, [0, 2, 4])])
def test_ticks_are_whole_and_few(last, ticks):
    assert whole_ticks(last) == ticks


def test_a_range_has_a_width_whatever_is_in_it():
    assert padded([], 1.0) == (-0.5, 0.5) and padded([math.nan, math.inf], 1.0) == (-0.5, 0.5)
    low, high = padded([3.0], 0.2)
    assert (low, high) == (pytest.approx(2.9), pytest.approx(3.1))
