"""A value far from the others, and on what an interval over seeds rests."""

from __future__ import annotations

import numpy as np
import pytest

from fa_registry.statistics import far_values, scatter_text


@pytest.mark.parametrize("n", [3, 5, 10])
def test_normal_seeds_are_called_far_as_often_as_the_level_says(n):
    draws = np.random.default_rng(20261125).normal(size=(4000, n)).tolist()
    assert np.mean([bool(far_values(values, 0.05, 0.0)) for values in draws]) == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([50, 51, 49, 10, 12], (3, 4)),  # two of five hide each other in a standard deviation
        ([50, 51, 49, 50.5, 10], (4,)),
        ([50, 55, 45, 52, 48], ()),
        ([10, 90, 50, 51, 49, 50], (0, 1)),
    ],
)
def test_collapsed_seeds_are_seen_while_they_are_fewer_than_half(values, far, sign):
    assert far_values([sign * value for value in values], 0.05, 2.0) == far


def test_two_equal_values_of_three_make_the_third_far_only_from_the_least_distance_on():
    assert far_values([10.0, 10.0, 8.1], 0.05, 2.0) == ()
    assert far_values([10.0, 10.0, 7.9], 0.05, 2.0) == (2,)


@pytest.mark.parametrize("values", [[1.0], [1.0, 99.0], [3.0] * 5])
def test_too_few_or_equal_values_have_none_that_is_far(values):
    assert far_values(values, 0.05, 0.0) == ()


def test_few_seeds_cannot_show_how_they_scatter_and_the_text_states_it():
    assert scatter_text([1.0]) == ""
    assert (
        "%" not in scatter_text([1.0, 2.0, 3.5], is_crossed=True).partition(";")[2]
    )  # percentages of another interval
    text = scatter_text([1.0, 2.0, 3.5])
    assert "3 seeds are" in text and "84 %" in text and "48 %" in text


def test_from_eight_seeds_on_the_scatter_is_tested():
    normal = np.random.default_rng(1).normal(size=20).tolist()
    assert "are compatible" in scatter_text(normal) and "20 seeds, p =" in scatter_text(normal)
    collapsed = [*normal[:8], -60.0, -61.0]
    assert "are not compatible" in scatter_text(collapsed) and "10 seeds, p =" in scatter_text(collapsed)
    assert scatter_text([2.0] * 8).endswith("values are equal")
