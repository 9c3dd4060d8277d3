"""Intervals of one mean: scipy's numbers, hand-worked ones, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from fa_registry.statistics import (
    Interval,
    bootstrap_interval,
    excludes,
    interval,
    level_words,
    look_confidence,
    seeds_to_plan,
    summary,
    t_interval,
    wilson_interval,
)

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


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_the_published_one(right, n, low, high):
    """Newcombe 1998, Statistics in Medicine 17, table I, method 3."""
    found = wilson_interval(right / n, n)
    assert (found.low, found.high, found.method) == (
        pytest.approx(low, abs=5e-5),
        pytest.approx(high, abs=5e-5),
        "wilson",
    )


def test_wilsons_interval_is_scipys_and_no_point_at_the_ends():
    for right in (0, 1, 180, 335, 360):
        expected = stats.binomtest(right, 360).proportion_ci(0.9, method="wilson")
        found = wilson_interval(right / 360, 360, 0.9)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert found.high - found.low > 0.005


@pytest.mark.parametrize(("share", "n"), [(1.2, 10), (-0.1, 10), (0.5, 0)])
def test_a_share_outside_its_range_is_refused(share, n):
    with pytest.raises(ValueError, match="share from 0 to 1 of n ≥ 1 samples"):
        wilson_interval(share, n)


def test_the_level_rises_with_the_looks_and_all_later_ones_err_as_often_as_the_first():
    levels = [look_confidence(look) for look in range(1, 5)]
    assert levels == pytest.approx([0.95, 0.975, 1 - 0.05 / 6, 1 - 0.05 / 12], abs=1e-12)
    assert [level_words(level) for level in levels] == ["95 %", "97.5 %", "99.17 %", "99.58 %"]
    assert sum(1 - look_confidence(look) for look in range(2, 20_000)) == pytest.approx(0.05, abs=1e-5)
    with pytest.raises(ValueError, match="counted from 1"):
        look_confidence(0)


def false_clears(level, looks: int = 10, studies: int = 20_000) -> float:
    """How often a margin that lies on the limit clears when a seed is added after every look until it does."""
    margins = np.random.default_rng(15).normal(0.0, 1.0, (studies, 2 + looks))
    clears = np.zeros(studies, dtype=bool)
    for look in range(1, looks + 1):
        seen = margins[:, : 2 + look]
        half = special.stdtrit(look + 1, (1 + level(look)) / 2) * seen.std(axis=1, ddof=1) / math.sqrt(look + 2)
        clears |= seen.mean(axis=1) - half >= 0
    return clears.mean()


def test_adding_seeds_until_it_clears_errs_in_8_of_100_studies_and_with_the_looks_counted_in_no_more_than_5():
    assert false_clears(lambda look: 0.95) > 0.075
    assert 0.025 < false_clears(look_confidence) < 0.05
    assert false_clears(look_confidence, looks=1) == pytest.approx(0.025, abs=0.003)


@pytest.mark.parametrize(("distance", "std"), [(1.5, 2.3), (2.5, 6.4), (1.0, 0.8), (5.0, 0.1)])
def test_a_planned_study_is_decided_four_times_in_five_and_one_seed_less_is_not(distance, std):
    def decided(n):
        """Simulated: the share of studies of n seeds whose interval lies wholly above the limit at 0."""
        sample = np.random.default_rng(n).normal(distance, std, (40_000, n))
        half = special.stdtrit(n - 1, 0.975) * sample.std(axis=1, ddof=1) / math.sqrt(n)
        return (sample.mean(axis=1) - half > 0).mean()

    needed = seeds_to_plan(distance, std)
    assert decided(needed) > 0.79 and (needed == 2 or decided(needed - 1) < 0.81)


def test_no_study_of_a_thousand_seeds_is_planned():
    assert seeds_to_plan(0.01, 1.0) is None
