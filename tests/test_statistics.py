"""Identities of the sample figures, and a simulation of what the t interval promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fa_registry.statistics import summary

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@given(NUMBERS)
def test_mean_and_deviation_are_numpys_with_ddof_one(values):
    found = summary(values)
    assert found.n == len(values)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert found.std == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-6)


@given(NUMBERS, st.floats(-1e3, 1e3))
def test_shifting_the_values_shifts_the_interval_and_keeps_the_deviation(values, shift):
    before, after = summary(values), summary([value + shift for value in values])
    assert after.mean == pytest.approx(before.mean + shift, abs=1e-6)
    assert after.std == pytest.approx(before.std, rel=1e-6, abs=1e-6)
    assert after.high - after.low == pytest.approx(before.high - before.low, rel=1e-6, abs=1e-5)


def test_the_interval_is_scipys():
    values = [0.91, 0.93, 0.94]
    found = summary(values)
    expected = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)


def test_equal_values_have_no_deviation_at_all():
    found = summary([0.1, 0.1, 0.1])  # 0.1 + 0.1 + 0.1 is 0.30000000000000004 in binary
    assert (found.mean, found.std, found.low, found.high) == (0.1, 0.0, 0.1, 0.1)


def test_one_value_has_a_mean_and_no_interval():
    found = summary([0.5])
    assert (found.n, found.mean, found.std, found.low, found.high) == (1, 0.5, None, None, None)


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_nothing_and_numbers_that_are_not_finite_are_refused(values):
    with pytest.raises(ValueError, match="value"):
        summary(values)


def test_the_interval_covers_the_mean_95_times_in_100_at_three_seeds():
    seed, trials = 20260504, 6000
    generator = np.random.default_rng(seed)
    intervals = [summary(generator.normal(0.9, 0.02, size=3)) for _ in range(trials)]
    coverage = np.mean([found.low <= 0.9 <= found.high for found in intervals])
    assert abs(coverage - 0.95) < 0.015, f"coverage {coverage:.4f} at seed {seed}"
