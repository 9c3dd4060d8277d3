"""A value far from the others, and on what an interval over seeds rests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fa_registry.statistics import far_value, scatter_text


def with_statistic(n: int, g: float) -> list[float]:
    """n values whose last is g standard deviations (ddof 1) above their mean; the others are −a and +a by turns.

    With S = (n − 1)·a² + m²·n/(n − 1), where the last is m above the mean of the others: g = m·(n − 1)/n / √(S/(n − 1)).
    """
    others = [(-1.0) ** place for place in range(n - 1)]
    others = [value - sum(others) / (n - 1) for value in others]
    spread = sum(value**2 for value in others)
    # g² = (m(n−1)/n)² (n−1) / (spread + m² (n−1)/n), solved for m
    share = (n - 1) / n
    m = math.sqrt(g**2 * spread / (share**2 * (n - 1) - g**2 * share))
    return [*others, m]


@pytest.mark.parametrize(("n", "critical"), [(4, 1.4812), (5, 1.7150), (6, 1.8871), (10, 2.2900), (20, 2.7082)])
def test_the_limit_is_grubbs_two_sided_one(n, critical):
    """Critical values at 5 % as tabulated (Grubbs and Beck 1972, Technometrics 14, table I, column 2.5 % of one side)."""
    beyond, below = (with_statistic(n, critical + shift) for shift in (2e-3, -2e-3))
    for values, g in ((beyond, critical + 2e-3), (below, critical - 2e-3)):
        assert (values[-1] - np.mean(values)) / np.std(values, ddof=1) == pytest.approx(g)
    assert far_value(beyond, 0.05, 0.0) == n - 1
    assert far_value(below, 0.05, 0.0) is None
    assert far_value([-value for value in beyond], 0.05, 0.0) == n - 1


@pytest.mark.parametrize("n", [3, 5, 10])
def test_normal_seeds_are_called_far_as_often_as_the_level_says(n):
    draws = np.random.default_rng(20261125).normal(size=(4000, n)).tolist()
    assert np.mean([far_value(values, 0.05, 0.0) is not None for values in draws]) == pytest.approx(0.05, abs=0.012)


def test_two_equal_values_of_three_make_the_third_far_only_from_the_least_distance_on():
    assert far_value([10.0, 10.0, 8.1], 0.05, 2.0) is None
    assert far_value([10.0, 10.0, 7.9], 0.05, 2.0) == 2


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 99.0], [3.0] * 5])
def test_too_few_or_equal_values_have_none_that_is_far(values):
    assert far_value(values, 0.05, 0.0) is None if values else True


def test_few_seeds_cannot_show_how_they_scatter_and_the_text_states_it():
    assert scatter_text([1.0]) == ""
    text = scatter_text([1.0, 2.0, 3.5])
    assert "3 seeds are" in text and "84 %" in text and "48 %" in text


def test_from_eight_seeds_on_the_scatter_is_tested():
    normal = np.random.default_rng(1).normal(size=20).tolist()
    assert "are compatible" in scatter_text(normal) and "20 seeds, p =" in scatter_text(normal)
    collapsed = [*normal[:8], -60.0, -61.0]
    assert "are not compatible" in scatter_text(collapsed) and "10 seeds, p =" in scatter_text(collapsed)
    assert scatter_text([2.0] * 8).endswith("values are equal")
