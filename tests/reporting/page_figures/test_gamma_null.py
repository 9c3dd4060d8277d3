"""Γ against its null: the band is what fresh feedback reaches, over all seeds."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Measurements, Reading
from fa_registry.reporting.figures.gamma_null import gamma_numbers, gamma_plate
from fa_registry.reporting.figures.style import styled
from tests.reporting.page_figures.scenes import with_record, with_runs


def test_the_twin_holds_gamma_and_two_deviations_around_the_null(rich):
    frame = gamma_numbers(groups(rich), rich.cards)
    run = next(run for run in rich.runs if run.record.spec.method == "dfa")
    sites = run.record.measurements.sites
    row = frame[(frame["run_id"] == run.record.run_id) & (frame["site"] == 3)].iloc[0]
    assert row["gamma"] == sites["gamma"][3].value
    middle, deviation = (sites[name][3].value for name in ("gamma_null_mean", "gamma_null_std"))
    assert (row["low"], row["high"]) == (pytest.approx(middle - 2 * deviation), pytest.approx(middle + 2 * deviation))
    assert "frozen" not in set(frame["method"])


def test_methods_without_a_null_are_left_out(rich, report):
    assert gamma_plate(groups(report), 100, report.cards) is None and gamma_plate((), 100, {}) is None
    absent = (Reading(None, "no feedback to draw afresh"),) * 5

    def without(run):
        sites = {**run.record.measurements.sites, "gamma_null_mean": absent, "gamma_null_std": absent}
        return with_record(run, measurements=Measurements(sites, {})) if run.record.spec.method == "bp" else run

    frame = gamma_numbers(groups(with_runs(rich, without)), rich.cards)
    assert set(frame["method"]) == {"fa", "dfa", "drtp"}


def test_the_plate_says_which_sites_lie_outside(rich):
    with styled():
        plate = gamma_plate(groups(rich), 100, rich.cards)
        assert plate == gamma_plate(groups(rich), 100, rich.cards)
    assert "fa 0, 1, 2, 3, 4" in plate.alt
    group = plate.groups[0]
    assert [line.name for line in group.rows] == [f"site {site}" for site in range(5)]
    assert all(len(line.cells) == 3 and line.cells[0].run_ids == group.run_ids for line in group.rows)
    assert "Γ inside it is no evidence" in plate.caption


def test_what_is_exact_by_construction_is_marked_and_not_judged(rich):
    cards = {"methods/fa": {"exact_sites": "last"}}
    with styled():
        plate = gamma_plate(groups(rich), 100, cards)
    assert "Hollow: exact by construction" in plate.caption and "fa 0, 1, 2, 3;" in plate.alt


@pytest.mark.parametrize("length", [0, 1, 40])
@pytest.mark.parametrize("gamma", [Reading(0.0), Reading(-1.0), Reading.of(float("nan"))], ids=str)
def test_any_numbers_and_depths_can_be_drawn(rich, length, gamma):
    null = {"gamma_null_mean": (Reading(0.0),) * length, "gamma_null_std": (Reading(0.02),) * length}
    measured = Measurements({"gamma": (gamma,) * length, **null}, {})
    scene = with_runs(rich, lambda run: with_record(run, measurements=measured))
    single = dataclasses.replace(scene, runs=scene.runs[:1])
    with styled():
        for one in (scene, single):
            assert (gamma_plate(groups(one), 100, {}) is None) == (length == 0)
