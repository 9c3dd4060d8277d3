"""Intervals of one mean: scipy's numbers, hand-worked ones, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fa_registry.statistics import Interval, bootstrap_interval, excludes, interval, summary, t_interval

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)
TWENTY = np.random.default_rng(3).normal(0.9, 0.02, size=20)


@given(NUMBERS)
def test_the_t_interval_is_the_summarys(values):
    found, short = t_interval(values), summary(values)
    assert (found.low, found.high, found.confidence, found.method) == (short.low, short.high, 0.95, "t")


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_the_t_interval_is_scipys_at_any_confidence(confidence):
    values = [0.91, 0.93, 0.94, 0.90]
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    found = t_interval(values, confidence)
    assert (found.low, found.high, found.confidence) == pytest.approx((*expected, confidence), rel=1e-12)


def test_the_t_interval_by_hand():
    """1, 2, 3: mean 2, std 1, t(0.975, 2) = 4.30265, half = 4.30265/√3 = 2.48414."""
    found = t_interval([1, 2, 3])
    assert (found.low, found.high) == pytest.approx((-0.48414, 4.48414), abs=1e-5)


def test_equal_values_have_a_point_interval():
    found = t_interval([0.1, 0.1, 0.1])
    assert (found.low, found.high) == (0.1, 0.1)


def test_one_value_has_no_interval():
    with pytest.raises(ValueError, match="a t interval needs at least 2 values, found 1; train or select more seeds"):
        t_interval([0.5])


@pytest.mark.parametrize("make", [t_interval, bootstrap_interval, interval])
@pytest.mark.parametrize("confidence", [0, 1, 95, float("nan")])
def test_a_confidence_is_a_probability(make, confidence):
    with pytest.raises(ValueError, match=r"expected a confidence between 0 and 1, found .*; 95 % is 0.95"):
        make(TWENTY, confidence)


@pytest.mark.parametrize("make", [t_interval, bootstrap_interval, interval])
def test_a_value_that_is_not_finite_is_refused(make):
    with pytest.raises(ValueError, match="finite values.*found nan among 21"):
        make([*TWENTY, math.nan])


def test_an_end_belongs_to_the_interval():
    found = Interval(0.0, 1.0, 0.95, "t")
    assert [excludes(found, value) for value in (-1e-9, 0.0, 0.5, 1.0, 1.000001)] == [True, False, False, False, True]


@pytest.mark.parametrize("n", [1, 3, 19])
def test_the_bootstrap_is_refused_below_twenty_with_the_reason(n):
    with pytest.raises(ValueError, match=f"at least 20 values, found {n}; .* covers 75 % at n = 3 .* use t_interval"):
        bootstrap_interval(TWENTY[:n])


def test_t_is_picked_below_twenty_and_the_bootstrap_from_there_on():
    assert interval(TWENTY[:19]) == t_interval(TWENTY[:19])
    assert interval(TWENTY, seed=4) == bootstrap_interval(TWENTY, seed=4)
    assert interval(TWENTY[:19], 0.9) == t_interval(TWENTY[:19], 0.9)
    assert interval(TWENTY, 0.9) == bootstrap_interval(TWENTY, 0.9)
    assert (interval(TWENTY[:19]).method, interval(TWENTY).method) == ("t", "bootstrap")


def test_the_bootstrap_repeats_itself_and_moves_with_its_seed():
    assert bootstrap_interval(TWENTY, seed=1) == bootstrap_interval(TWENTY, seed=1)
    assert bootstrap_interval(TWENTY, seed=1) != bootstrap_interval(TWENTY, seed=2)


def test_the_bootstrap_of_normal_values_is_about_as_wide_as_their_t_interval():
    """The plain percentile interval is 9 % too narrow at n = 20: 1.96·√(19/20)/2.093 = 0.913."""
    found, expected = bootstrap_interval(TWENTY), t_interval(TWENTY)
    assert (found.high - found.low) / (expected.high - expected.low) == pytest.approx(1.0, abs=0.04)
    assert found.low < np.mean(TWENTY) < found.high


def test_the_bootstrap_of_equal_values_is_a_point():
    found = bootstrap_interval([0.1] * 20)
    assert (found.low, found.high) == (0.1, 0.1)
