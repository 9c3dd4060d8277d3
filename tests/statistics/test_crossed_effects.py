"""The error of a mean over seeds and test samples: its formula, its parts, and how often its interval contains the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fa_registry.statistics import crossed_mean, t_interval, wilson_interval, with_proportions

TABLE = [[1, 0, 1, 1, 0], [0, 0, 1, 1, 1], [1, 1, 1, 0, 1]]


def reference(table):
    """Mean, variance of the mean and degrees of freedom, written from the two-way analysis of variance without replication."""
    n, size = len(table), len(table[0])
    grand = sum(map(sum, table)) / (n * size)
    rows = [sum(row) / size for row in table]
    columns = [sum(row[j] for row in table) / n for j in range(size)]
    seed = size * sum((row - grand) ** 2 for row in rows) / (n - 1)
    sample = n * sum((column - grand) ** 2 for column in columns) / (size - 1)
    inner = sum((table[i][j] - rows[i] - columns[j] + grand) ** 2 for i in range(n) for j in range(size))
    inner /= (n - 1) * (size - 1)
    total = max(seed + sample - inner, inner)
    bottom = seed**2 / (n - 1) + sample**2 / (size - 1) + inner**2 / ((n - 1) * (size - 1))
    return grand, total / (n * size), total**2 / bottom


@pytest.mark.parametrize(
    "table", [TABLE, [[0.5, -2.0], [0.25, 3.0]], np.random.default_rng(1).normal(size=(4, 30)).tolist()]
)
def test_variance_and_degrees_of_freedom_are_those_of_the_mean_squares(table):
    mean, variance, df = reference(table)
    found = crossed_mean(table)
    assert (found.mean, found.variance, found.df) == pytest.approx((mean, variance, df), rel=1e-12)
    half_width = stats.t.ppf(0.975, df) * math.sqrt(variance)
    assert (found.interval.low, found.interval.high) == pytest.approx((mean - half_width, mean + half_width), rel=1e-12)


def test_equal_seeds_have_the_error_of_the_test_set_alone():
    """Three copies of one run are one sample of the test set: std of the scores over √T."""
    scores = np.random.default_rng(2).random(200)
    found = crossed_mean([scores] * 3)
    assert found.variance == pytest.approx(scores.var(ddof=1) / 200, rel=1e-12)
    assert (found.sample_share, found.seed_share) == pytest.approx((1, 0), abs=1e-12)


def test_equal_samples_have_the_error_of_the_seeds_alone():
    """Every sample of a seed has one score: Student's interval over the seeds."""
    by_seed = [0.3, 0.5, 0.4]
    found, expected = crossed_mean(np.repeat(by_seed, 50).reshape(3, 50)), t_interval(by_seed)
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert (found.sample_share, found.seed_share, found.df) == pytest.approx((0, 1, 2), abs=1e-12)


def test_the_order_of_samples_and_the_unit_do_not_matter():
    table = np.random.default_rng(3).normal(size=(5, 40))
    found, scaled = crossed_mean(table), crossed_mean(-100 * table[::-1, ::-1])
    assert scaled.df == pytest.approx(found.df) and scaled.variance == pytest.approx(1e4 * found.variance)
    assert crossed_mean(table, 0.99).interval.low < found.interval.low


def test_without_any_spread_the_interval_has_the_width_of_rounding():
    found = crossed_mean(np.ones((3, 10)))
    assert found.remark and 0 < found.interval.high - found.interval.low < 1e-12


@pytest.mark.parametrize("table", [[[1, 2]], [[1], [2]], [1, 2], [[1, math.nan], [1, 2]], np.zeros((0, 3))])
def test_too_few_values_are_refused(table):
    with pytest.raises(ValueError, match="two seeds"):
        crossed_mean(table)


def test_unknown_answers_add_the_wilson_error_of_each_share():
    over_seeds, wilson = t_interval([34.0, 35.0, 36.0]), wilson_interval(0.35, 360)
    found = with_proportions(over_seeds, [0.35, 0.35], 360, scale=100)
    halves = [(item.high - item.low) / 2 for item in (over_seeds, wilson, wilson)]
    assert (found.high - found.low) / 2 == pytest.approx(math.hypot(halves[0], 100 * halves[1], 100 * halves[2]))
    assert (found.high + found.low) / 2 == pytest.approx(35)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("seed_std", [0.002, 0.01, 0.03, 0.06])
def test_the_interval_contains_the_true_mean_in_95_percent_of_studies(seeds, seed_std):
    """Normal effects; a test set of 360 samples has a standard deviation of .42 over samples, .3 over seed × sample."""
    draw, trials, inside = np.random.default_rng((4, seeds)).normal, 2000, 0
    for _ in range(trials):
        table = draw(0, seed_std, (seeds, 1)) + draw(0, 0.42, (1, 360)) + draw(0, 0.3, (seeds, 360))
        interval = crossed_mean(table).interval
        inside += interval.low <= 0 <= interval.high
    assert 0.92 <= inside / trials <= 0.97
