"""Differences against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import special, stats

from fa_registry.statistics import (
    Reported,
    excludes,
    holm,
    paired_difference,
    reported,
    stated_difference,
    t_interval,
    tost,
)
from tests.helpers.welch import welch_interval

A, B = {0: 0.91, 1: 0.94, 2: 0.90, 3: 0.95}, {0: 0.88, 1: 0.90, 2: 0.89, 3: 0.90}
SAMPLES = st.lists(st.integers(-1000, 1000).map(lambda count: count / 360), min_size=2, max_size=8)
POINT = dict(rel=0, abs=1e-14)


def test_the_paired_difference_is_scipys():
    found, expected = paired_difference(A, B), stats.ttest_rel(list(A.values()), list(B.values()))
    assert (found.p, found.df) == pytest.approx((expected.pvalue, expected.df), rel=1e-10)
    assert (found.interval.low, found.interval.high) == pytest.approx(expected.confidence_interval(), rel=1e-10)
    assert found.std == pytest.approx(np.std([A[seed] - B[seed] for seed in A], ddof=1))


def test_pairs_are_made_by_seed_not_by_order_and_the_rest_is_named():
    found = paired_difference({7: 0.7, 1: 0.9, 2: 0.8}, {2: 0.5, 9: 0.1, 1: 0.6, 4: 0.0})
    assert (found.seeds, found.only_a, found.only_b) == ((1, 2), (7,), (4, 9))
    assert found.mean == pytest.approx(0.3)


def test_one_pair_is_provisional():
    found = paired_difference({1: 0.9, 2: 0.8}, {1: 0.6})
    assert (found.mean, found.std, found.interval, found.p, found.df) == (pytest.approx(0.3), None, None, None, None)
    assert "one pair" in found.remark


def test_no_common_seed_is_an_error_that_lists_both_sides():
    with pytest.raises(
        ValueError,
        match=r"common seeds, but a has the seeds \[1, 2\] and b has the seeds \[3\]; train both",
    ):
        paired_difference({2: 0.5, 1: 0.5}, {3: 0.5})


def test_a_broken_run_is_refused_even_without_a_partner():
    with pytest.raises(ValueError, match="side b: expected finite values.*found nan among 3"):
        paired_difference({1: 0.5, 2: 0.6}, {1: 0.5, 2: 0.6, 3: math.nan})


def test_values_without_seeds_cannot_be_paired():
    with pytest.raises(ValueError, match=r"side a: expected a mapping of seed to value, found \[0.5, 0.6\]"):
        paired_difference([0.5, 0.6], B)


def test_equal_differences_have_the_interval_of_rounding_and_a_remark():
    found = paired_difference({1: 0.5, 2: 0.7}, {1: 0.25, 2: 0.45})
    assert (found.interval.low, found.interval.high) == pytest.approx((0.25, 0.25), **POINT)
    assert found.p < 1e-10 and found.remark.startswith("no spread") and "2 values" in found.remark


def test_rounding_is_no_difference():
    left, right = {1: 0.3, 2: 0.3}, {1: 0.1 + 0.2, 2: 0.1 + 0.2}
    found = paired_difference(left, right)
    assert found.mean != 0 and not excludes(found.interval, 0) and found.p > 0.5


@pytest.mark.parametrize("value", [0.0, 0.9])
def test_the_same_values_do_not_differ(value):
    found = paired_difference({1: value, 2: value}, {1: value, 2: value})
    assert (found.mean, found.p, excludes(found.interval, 0)) == (0.0, 1.0, False)


@given(SAMPLES, SAMPLES)
def test_swapping_the_sides_swaps_the_signs(left, right):
    a, b = dict(enumerate(left)), dict(enumerate(right))
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert (there.mean, there.p) == (-back.mean, back.p)
    assert (there.interval.low, there.interval.high) == (-back.interval.high, -back.interval.low)
    assert math.isfinite(there.p) and 0 <= there.p <= 1


@given(SAMPLES, SAMPLES)
def test_the_interval_excludes_zero_where_p_is_below_five_percent(left, right):
    found = paired_difference(dict(enumerate(left)), dict(enumerate(right)))
    assert excludes(found.interval, 0.0) == (found.p < 0.05)


def test_stated_numbers_that_differ_are_welchs():
    found, expected = stated_difference(A.values(), B.values()), welch_interval(A.values(), [0.88, 0.90, 0.89, 0.90])
    again = stated_difference([0.91, 0.94, 0.90], [0.88, 0.905, 0.89])
    same = welch_interval([0.91, 0.94, 0.90], [0.88, 0.905, 0.89])
    assert (again.mean, again.draws) == (pytest.approx(0.025), 3)
    assert (again.interval.low, again.interval.high) == pytest.approx((same.low, same.high))
    assert found.draws == 3 and found.interval.low < expected.low  # 0.90 twice is one number


def test_one_stated_number_is_a_further_value_by_hand():
    """1, 2, 3 against 0: s = 1, √(1 + 1/3) = 1.1547, t at 2 degrees = 4.30265."""
    found = stated_difference([1, 2, 3], [0, 0, 0])
    assert (found.mean, found.draws, found.interval.high) == (2.0, 1, pytest.approx(2 + 4.302653 * 1.154701))
    assert stated_difference([1, 2, 3], [0]).interval == found.interval
    alone = t_interval([1, 2, 3])
    assert found.interval.high - found.interval.low == pytest.approx(2 * (alone.high - alone.low))  # √(n + 1)


def test_stated_numbers_less_than_a_sample_apart_are_one():
    """A last digit that no test set has makes no second draw."""
    values, figures = [0.90, 0.93, 0.88], [0.7000, 0.7001, 0.7002]
    assert stated_difference(values, figures).draws == 3
    found = stated_difference(values, figures, resolution=1 / 360)
    assert found.draws == 1 and found.interval.low < stated_difference(values, figures).interval.low


def test_one_value_against_a_stated_number_has_no_interval():
    found = stated_difference([0.9], [0.7, 0.8])
    assert (found.mean, found.interval) == (pytest.approx(0.15), None) and "no interval" in found.remark
    with pytest.raises(ValueError, match="the values stated by the author: expected finite values"):
        stated_difference([0.9, 0.8], [math.nan])


def test_a_paired_interval_may_be_asked_for_at_a_higher_level():
    a, b = {1: 3.0, 2: 4.0, 3: 5.5}, {1: 1.0, 2: 1.5, 3: 2.0}
    wide, usual = paired_difference(a, b, 0.975).interval, paired_difference(a, b).interval
    expected = t_interval([2.0, 2.5, 3.5], 0.975)
    assert (wide.low, wide.high, wide.confidence) == pytest.approx((expected.low, expected.high, 0.975))
    assert wide.low < usual.low and usual.confidence == 0.95


VALUES = [0.902, 0.911, 0.897, 0.905]
PUBLISHED = [0.90, 0.92, 0.91]


def test_against_a_constant_the_two_tests_are_scipys():
    found = tost(VALUES, 0.90, 0.02)
    lower = stats.ttest_1samp(VALUES, 0.90 - 0.02, alternative="greater")
    upper = stats.ttest_1samp(VALUES, 0.90 + 0.02, alternative="less")
    assert (found.p_lower, found.p_upper, found.df) == pytest.approx((lower.pvalue, upper.pvalue, 3), rel=1e-9)
    whole = stats.ttest_1samp(np.subtract(VALUES, 0.90), 0.0)
    for mine, confidence in ((found.interval_90, 0.90), (found.interval_95, 0.95)):
        assert (mine.low, mine.high) == pytest.approx(whole.confidence_interval(confidence), rel=1e-9)
        assert mine.confidence == pytest.approx(confidence)


def test_against_published_figures_the_two_tests_are_scipys_with_welchs_degrees():
    found = tost(VALUES, reported(PUBLISHED), 0.02)
    lower = stats.ttest_ind(np.add(VALUES, 0.02), PUBLISHED, equal_var=False, alternative="greater")
    upper = stats.ttest_ind(np.subtract(VALUES, 0.02), PUBLISHED, equal_var=False, alternative="less")
    assert (found.p_lower, found.p_upper, found.df) == pytest.approx((lower.pvalue, upper.pvalue, lower.df), rel=1e-9)
    ends = stats.ttest_ind(VALUES, PUBLISHED, equal_var=False).confidence_interval(0.9)
    assert (found.interval_90.low, found.interval_90.high) == pytest.approx(ends, rel=1e-9)


def test_by_hand():
    """1, 2, 3 against 2, margin 3: t = 3√3 at 2 degrees on both sides; p = (1 − t/√(t² + 2))/2 = 0.017544."""
    found = tost([1, 2, 3], 2, 3)
    assert (found.p_lower, found.p_upper) == pytest.approx([(1 - math.sqrt(27 / 29)) / 2] * 2, rel=1e-9)
    assert (found.outcome, found.difference, found.margin, found.df, found.remark) == ("reproduced", 0.0, 3.0, 2.0, "")


def test_figures_count_as_their_values():
    assert tost(reported(VALUES), 0.9, 0.02) == tost(VALUES, 0.9, 0.02)


@pytest.mark.parametrize(
    ("mean", "outcome"),
    # std 1, n 4: half of the 90 % interval 2.3534/2 = 1.1767, of the 95 % interval 3.1824/2 = 1.5912; margin 2
    [
        (0.0, "reproduced"),
        (0.82, "reproduced"),
        (0.83, "not shown"),
        (2.0, "not shown"),
        (3.18, "not shown"),  # outside by the 90 % interval, not by the 95 % one
        (3.58, "not shown"),
        (3.60, "differs"),
        (-0.82, "reproduced"),
        (-0.83, "not shown"),
        (-3.58, "not shown"),
        (-3.60, "differs"),
    ],
)
def test_the_outcome_changes_where_the_intervals_say(mean, outcome):
    assert tost(Reported(mean, 1.0, 4), 0.0, 2.0).outcome == outcome
    assert tost(Reported(10 + mean, 1.0, 4), 10.0, 2.0).outcome == outcome


def test_no_significant_difference_is_no_reproduction():
    values = [0.5, 0.9, 1.3]
    assert stats.ttest_1samp(values, 0.9).pvalue > 0.99
    assert tost(values, 0.9, 0.02).outcome == "not shown"


@given(
    st.floats(-3, 3), st.floats(0.01, 2), st.integers(2, 12), st.floats(0.01, 2), st.integers(2, 12), st.floats(0.1, 2)
)
def test_outcomes_are_those_of_the_intervals_and_mirror(mean, std, n, spread, m, margin):
    found = tost(Reported(mean, std, n), Reported(0.0, spread, m), margin)
    back = tost(Reported(0.0, spread, m), Reported(mean, std, n), margin)
    inner, outer = found.interval_90, found.interval_95
    assume(min(abs(abs(end) - margin) for end in (inner.low, inner.high, outer.low, outer.high)) > 1e-9)
    inside, outside = -margin < inner.low and inner.high < margin, outer.low > margin or outer.high < -margin
    assert found.outcome == ("reproduced" if inside else "differs" if outside else "not shown")
    assert (back.outcome, back.p_lower, back.p_upper) == (found.outcome, found.p_upper, found.p_lower)
    assert outer.low < inner.low <= found.difference <= inner.high < outer.high


@pytest.mark.parametrize(
    ("value", "outcome"), [(0.90, "reproduced"), (0.915, "reproduced"), (0.92, "not shown"), (0.93, "differs")]
)
def test_without_spread_the_difference_itself_is_judged_and_says_so(value, outcome):
    for published in (0.90, Reported(0.90, 0.0, 3)):
        found = tost([value] * 3, published, 0.02)
        assert found.outcome == outcome and found.remark.startswith("no spread")
        assert all(math.isfinite(p) for p in (found.p_lower, found.p_upper))


def test_a_margin_met_exactly_is_not_met_by_rounding():
    assert 100.02 - 100.0 < 0.02  # by 4e-15
    assert tost([100.02] * 3, 100.0, 0.02).outcome == "not shown"


def test_all_zeros_are_zero():
    found = tost([0.0, 0.0], 0.0, 1e-300)
    assert (found.outcome, found.difference) == ("reproduced", 0.0)


@pytest.mark.parametrize("margin", [0, -0.01])
def test_a_margin_is_positive(margin):
    with pytest.raises(
        ValueError, match=f"expected a margin > 0, found {float(margin)}; choose the margin before the runs"
    ):
        tost(VALUES, 0.9, margin)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.9], 0.9, 0.02), "an equivalence test needs at least 2 values, found 1"),
        (([0.9, math.nan], 0.9, 0.02), "an equivalence test: expected finite values.*found nan"),
        ((VALUES, math.nan, 0.02), "the published value: expected finite values"),
        ((VALUES, 0.9, math.nan), "the margin: expected finite values"),
        ((VALUES, 0.9, math.inf), "the margin: expected finite values"),
        ((VALUES, (0.9, 0.01, 3), 0.02), r"found \(0.9, 0.01, 3\); wrap the numbers in Reported"),
    ],
)
def test_what_allows_no_judgement_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tost(*arguments)


def test_holm_multiplies_the_smallest_most_and_keeps_their_order():
    """By hand: .01·4, .02·3 → .06, .03·2 → .06, .04·1 → .06 again, since no larger p may be adjusted to less."""
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.01] * 5) == (0.05,) * 5 and holm([1 / 60] * 3) == (0.05,) * 3
    assert holm([0.5, 0.9]) == (1.0, 1.0) and holm([]) == ()
    with pytest.raises(ValueError, match="expected p-values from 0 to 1"):
        holm([0.2, 1.2])


def test_holm_errs_in_no_more_than_five_per_cent_of_families_however_they_hang_together():
    """Ranks of exchangeable draws, apart or all one: at least one of five true nulls is rejected in 5 % at most."""
    rng = np.random.default_rng(7)
    for shared in (0.0, 0.9):
        common = rng.standard_normal((4000, 1))
        noise = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.standard_normal((4000, 5))
        families = special.ndtr(noise)
        wrong = np.mean([min(holm(family)) <= 0.05 for family in families])
        assert wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
        assert np.mean(families.min(axis=1) <= 0.05) > wrong  # what five tests by themselves would do
