"""Rank p-values: counted by hand, never 0, uniform under the null."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fa_registry.statistics import rank_p_value


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
        (math.nan, [0.1], "the observed figure takes finite values"),
        (0.5, [0.1, math.nan], "a null distribution takes finite values.*found nan among 2"),
    ],
)
def test_what_has_no_rank_is_refused(observed, null, message):
    with pytest.raises(ValueError, match=message):
        rank_p_value(observed, null)
