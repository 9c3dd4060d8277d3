"""The equivalence test against scipy's one-sided tests, by hand, and at the edges of its three outcomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from fa_registry.statistics import Reported, reported, tost

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
    with pytest.raises(ValueError, match=f"expected a margin > 0, found {float(margin)}; fix it .* before the runs"):
        tost(VALUES, 0.9, margin)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.9], 0.9, 0.02), "an equivalence test needs at least 2 values, found 1"),
        (([0.9, math.nan], 0.9, 0.02), "an equivalence test takes finite values.*found nan"),
        ((VALUES, math.nan, 0.02), "the published figure takes finite values"),
        ((VALUES, 0.9, math.nan), "the margin takes finite values"),
        ((VALUES, 0.9, math.inf), "the margin takes finite values"),
        ((VALUES, (0.9, 0.01, 3), 0.02), r"found \(0.9, 0.01, 3\); wrap the figures in Reported"),
    ],
)
def test_what_allows_no_judgement_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tost(*arguments)
