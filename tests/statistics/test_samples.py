"""Identities of the sample figures, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fa_registry.statistics import Reported, reported, summary
from fa_registry.statistics.samples import upper_tail

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


@given(NUMBERS)
def test_reported_figures_are_those_of_the_summary(values):
    found, short = reported(values), summary(values)
    assert (found.mean, found.std, found.n) == (short.mean, short.std, short.n)


def test_a_deviation_whose_square_underflows_is_kept():
    assert summary([0.0, 2e-170]).std == pytest.approx(2e-170 / np.sqrt(2), rel=1e-12, abs=0)


def test_a_mapping_is_refused_because_its_seeds_would_be_averaged():
    with pytest.raises(ValueError, match=r"found a mapping \{0: 0.9, 1: 0.91\}; pass its .values\(\)"):
        summary({0: 0.9, 1: 0.91})


@pytest.mark.parametrize("value", [None, "0.9", 1e200, 1j, np.array([1.0, 2.0])])
def test_what_is_no_usable_number_is_shown_in_the_error(value):
    with pytest.raises(ValueError, match="a summary takes finite values up to 1e\\+150, found .* among 2; leave"):
        summary([0.5, value])


def test_numbers_of_numpy_and_whole_numbers_are_numbers():
    assert summary([np.float32(0.5), np.int64(1), True]).mean == pytest.approx(2.5 / 3)


@pytest.mark.parametrize(("std", "n"), [(-0.1, 3), (0.1, 1), (0.1, 3.0)])
def test_impossible_published_figures_are_refused(std, n):
    with pytest.raises(
        ValueError, match="expected a standard deviation ≥ 0 and an integer n ≥ 2, found std=.*constant"
    ):
        Reported(0.9, std, n)


@pytest.mark.parametrize(("mean", "std"), [(float("nan"), 0.1), (0.9, float("inf")), (0.9, None)])
def test_published_figures_are_finite_numbers(mean, std):
    with pytest.raises(ValueError, match="finite values"):
        Reported(mean, std, 3)


def test_the_tail_keeps_its_digits_far_out():
    assert upper_tail(1e6, 9) == pytest.approx(stats.t.sf(1e6, 9), rel=1e-9, abs=0)
    assert upper_tail(-1.5, 4) + upper_tail(1.5, 4) == pytest.approx(1.0, rel=1e-12)


def test_published_figures_of_single_precision_are_widened():
    found = Reported(np.float32(0.5), np.float32(0.25), np.int64(3))
    assert [type(value) for value in (found.mean, found.std, found.n)] == [float, float, int]
