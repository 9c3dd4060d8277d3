"""Paired differences: over shared seeds only, with an interval or with why there is none."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Reading
from fa_registry.reporting.pages.comparison import paired_rows
from fa_registry.statistics import paired_difference


def rows_of(report, first, second):
    by_method = {one.method: one for one in groups(report)}
    return {row.words: row for row in paired_rows(by_method[first], by_method[second])}


@pytest.fixture
def two(judged, record):
    """dfa and bp over given seeds, with given accuracies and ‖h_L‖."""

    def make(dfa, bp, scale=1e3):
        runs = [record("dfa", seed, value, scale * (1 + seed), 0.1, 0.1) for seed, value in dfa.items()]
        return judged([*runs, *(record("bp", seed, value, 3.0, 0.1, 1.0) for seed, value in bp.items())])

    return make


def test_it_is_the_paired_t_interval_over_shared_seeds(two):
    dfa, bp = {1: 0.5, 2: 0.61, 3: 0.7, 9: 0.1}, {1: 0.9, 2: 0.93, 3: 0.99}
    row = rows_of(two(dfa, bp), "dfa", "bp")["test accuracy"]
    expected = paired_difference({seed: 100 * dfa[seed] for seed in bp}, {seed: 100 * bp[seed] for seed in bp})
    assert row.difference.reading.value == expected.mean
    assert (row.low.value, row.high.value) == (expected.interval.low, expected.interval.high)
    assert (row.seeds, row.answer) == ((1, 2, 3), "lower")
    assert row.remark == "without seed 9: no value on both sides"
    assert len(row.difference.run_ids) == 6


def test_scales_are_compared_in_decades(two):
    row = rows_of(two({1: 0.5, 2: 0.6}, {1: 0.5, 2: 0.6}), "dfa", "bp")["‖h_L‖₂"]
    assert row.unit == "decades" and row.difference.reading.value == pytest.approx(
        (math.log10(1e3 * 2 / 3) + math.log10(1e3 * 3 / 3)) / 2, abs=0.02
    )


def test_an_interval_with_zero_inside_is_undecided(two):
    assert (
        rows_of(two({1: 0.5, 2: 0.7, 3: 0.6}, {1: 0.6, 2: 0.6, 3: 0.6}), "dfa", "bp")["test accuracy"].answer
        == "undecided"
    )


def test_one_pair_is_provisional(two):
    row = rows_of(two({1: 0.5}, {1: 0.6}), "dfa", "bp")["test accuracy"]
    assert (row.answer, row.low.reason) == ("provisional", "one shared seed: no interval")


def test_a_seed_that_occurs_twice_has_no_partner(two):
    report = two({1: 0.5, 2: 0.6}, {1: 0.5, 2: 0.6})
    twice = dataclasses.replace(report.runs[0].record, run_id="d" * 32)
    report = dataclasses.replace(report, runs=(*report.runs, dataclasses.replace(report.runs[0], record=twice)))
    row = rows_of(report, "dfa", "bp")["test accuracy"]
    assert (row.answer, row.difference.reading) == ("none", Reading(None, "seed 1 occurs more than once on one side"))


def test_what_is_not_finite_is_left_out_not_subtracted(report):
    """One of the two dfa runs of the small report diverged: its ‖h_L‖ is not finite."""
    row = rows_of(report, "dfa", "bp")["‖h_L‖₂"]
    assert len(row.seeds) == 1 and "no value on both sides" in row.remark
