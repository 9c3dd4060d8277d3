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
    Reported,
    excludes,
    level_text,
    look_confidence,
    rank_p_value,
    reported,
    seeds_to_plan,
    std_factors,
    summary,
    t_interval,
    wilson_interval,
)
from fa_registry.statistics.samples import upper_tail

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


def test_equal_values_have_a_point_interval():
    found = t_interval([0.1, 0.1, 0.1])
    assert (found.low, found.high) == (0.1, 0.1)


def test_one_value_has_no_interval():
    with pytest.raises(ValueError, match="a t interval needs at least 2 values, found 1; train or select more seeds"):
        t_interval([0.5])


@pytest.mark.parametrize("confidence", [0, 1, 95, float("nan")])
def test_a_confidence_is_a_probability(confidence):
    with pytest.raises(ValueError, match=r"expected a confidence level between 0 and 1, found .*; for 95 %, pass 0.95"):
        t_interval(TWENTY, confidence)


def test_a_value_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="finite values.*found nan among 21"):
        t_interval([*TWENTY, math.nan])


def test_an_end_belongs_to_the_interval():
    found = Interval(0.0, 1.0, 0.95, "t")
    assert [excludes(found, value) for value in (-1e-9, 0.0, 0.5, 1.0, 1.000001)] == [True, False, False, False, True]


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
    with pytest.raises(ValueError, match="proportion from 0 to 1 and a number of samples n ≥ 1"):
        wilson_interval(share, n)


def test_the_level_rises_with_the_looks_and_all_later_ones_err_as_often_as_the_first():
    levels = [look_confidence(look) for look in range(1, 5)]
    assert levels == pytest.approx([0.95, 0.975, 1 - 0.05 / 6, 1 - 0.05 / 12], abs=1e-12)
    assert [level_text(level) for level in levels] == ["95 %", "97.5 %", "99.17 %", "99.58 %"]
    assert sum(1 - look_confidence(look) for look in range(2, 20_000)) == pytest.approx(0.05, abs=1e-5)
    with pytest.raises(ValueError, match="expected the number of the interim analysis, 1 or more, found 0"):
        look_confidence(0)


def false_clears(level, looks: int = 10, studies: int = 20_000) -> float:
    """How often a margin on the limit clears when a seed is added after every interim analysis until it does."""
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
        """Simulated: the share of studies of n seeds whose interval is wholly above the limit at 0."""
        sample = np.random.default_rng(n).normal(distance, std, (40_000, n))
        half = special.stdtrit(n - 1, 0.975) * sample.std(axis=1, ddof=1) / math.sqrt(n)
        return (sample.mean(axis=1) - half > 0).mean()

    needed = seeds_to_plan(distance, std)
    assert decided(needed) > 0.79 and (needed == 2 or decided(needed - 1) < 0.81)


@pytest.mark.parametrize(("distance", "std", "floor"), [(3.0, 2.0, 1.0), (5.0, 4.0, 0.5)])
def test_a_planned_study_with_the_error_of_a_test_set_is_decided_four_times_in_five(distance, std, floor):
    def decided(n):
        """Simulated with a known floor: the share of studies whose interval is wholly above the limit at 0."""
        draw = np.random.default_rng(n)
        sample = draw.normal(distance, std, (40_000, n)) + draw.normal(0, floor, (40_000, 1))
        variance = sample.var(axis=1, ddof=1) / n
        df = (n - 1) * (1 + floor**2 / variance) ** 2
        return (sample.mean(axis=1) > special.stdtrit(df, 0.975) * np.sqrt(variance + floor**2)).mean()

    needed = seeds_to_plan(distance, std, floor)
    assert decided(needed) > 0.77 and (needed == 2 or decided(needed - 1) < 0.82)
    assert needed >= seeds_to_plan(distance, std) and seeds_to_plan(distance, std, floor=distance) is None


@pytest.mark.parametrize("n", [3, 8])
def test_the_interval_of_a_standard_deviation_contains_it_in_80_percent_of_samples(n):
    low, high = std_factors(n)
    std = np.random.default_rng(n).normal(size=(40_000, n)).std(axis=1, ddof=1)
    assert ((low * std < 1) & (high * std > 1)).mean() == pytest.approx(0.8, abs=0.01)


def test_no_study_of_a_thousand_seeds_is_planned():
    assert seeds_to_plan(0.01, 1.0) is None


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
    with pytest.raises(
        ValueError, match="a summary: expected finite values up to 1e\\+150, found .* among 2 values; exclude"
    ):
        summary([0.5, value])


def test_numbers_of_numpy_and_whole_numbers_are_numbers():
    assert summary([np.float32(0.5), np.int64(1), True]).mean == pytest.approx(2.5 / 3)


@pytest.mark.parametrize(("std", "n"), [(-0.1, 3), (0.1, 1), (0.1, 3.0)])
def test_impossible_published_figures_are_refused(std, n):
    with pytest.raises(
        ValueError,
        match="expected a standard deviation ≥ 0 and an integer n ≥ 2, found std=.*without a standard deviation",
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


@pytest.mark.parametrize(
    ("observed", "expected"),
    [(9.0, 1 / 5), (4.0, 2 / 5), (3.5, 2 / 5), (2.0, 4 / 5), (0.0, 1.0)],  # a tie counts against the observed figure
)
def test_counted_by_hand(observed, expected):
    assert rank_p_value(observed, [1.0, 2.0, 2.0, 4.0]) == pytest.approx(expected)


def test_twenty_draws_can_just_reach_five_percent():
    assert rank_p_value(1.0, np.zeros(20)) == pytest.approx(1 / 21)
    assert rank_p_value(1.0, np.zeros(18)) > 0.05


def test_the_order_of_the_draws_does_not_matter():
    draws = np.random.default_rng(5).normal(size=20)
    assert rank_p_value(0.3, draws) == rank_p_value(0.3, sorted(draws))


def test_under_the_null_it_rejects_one_in_twenty():
    generator, trials = np.random.default_rng(20260504), 4000
    p = np.array([rank_p_value(row[0], row[1:]) for row in generator.normal(size=(trials, 20))])
    for level in (0.05, 0.25, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / trials))


@pytest.mark.parametrize(
    ("observed", "null", "message"),
    [
        (0.5, [], "a null distribution needs at least one value, found none"),
        (math.nan, [0.1], "the observed value: expected finite values"),
        (0.5, [0.1, math.nan], "a null distribution: expected finite values.*found nan among 2"),
    ],
)
def test_what_has_no_rank_is_refused(observed, null, message):
    with pytest.raises(ValueError, match=message):
        rank_p_value(observed, null)
