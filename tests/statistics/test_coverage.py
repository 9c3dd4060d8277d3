"""What the intervals and tests promise, by simulation on seeded normal samples.

At 4000 trials the standard error of a coverage of 95 % is 0.34 points; the tolerance of 1.5 is four of them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from fa_registry.statistics import (
    paired_difference,
    reported,
    stated_difference,
    summary,
    t_interval,
    tost,
)

pytestmark = pytest.mark.long

SEED, TRIALS, MEAN, STD = 20260504, 4000, 0.9, 0.02
SIZES = (3, 5, 10)


def draws(n: int, *, shift: float = 0.0, std: float = STD, stream: int = 0, trials: int = TRIALS) -> list[list[float]]:
    generator = np.random.default_rng((SEED, n, stream))
    return generator.normal(MEAN + shift, std, size=(trials, n)).tolist()


def coverage(intervals, value: float) -> float:
    return float(np.mean([found.low <= value <= found.high for found in intervals]))


def assert_near_95(found: float) -> None:
    assert abs(found - 0.95) <= 0.015, f"coverage {found:.4f} at seed {SEED}"


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("make", [summary, t_interval])
def test_intervals_of_one_mean_cover_it(make, n):
    assert_near_95(coverage(map(make, draws(n)), MEAN))


@pytest.mark.parametrize("n", SIZES)
def test_paired_intervals_cover_the_difference_whatever_the_seeds_add(n):
    """The seeds' own spread is five times that of the differences: pairing takes it out."""
    common = draws(n, std=5 * STD, stream=1)
    plus, minus = draws(n, shift=0.03, stream=2), draws(n, stream=3)
    pairs = (
        (dict(enumerate(np.add(seed, a).tolist())), dict(enumerate(np.add(seed, b).tolist())))
        for seed, a, b in zip(common, plus, minus, strict=True)
    )
    assert_near_95(coverage((paired_difference(a, b).interval for a, b in pairs), 0.03))


@pytest.mark.parametrize(("n", "ratio"), [(3, 2), (3, 4), (5, 1), (5, 4), (10, 1), (10, 4)])
def test_intervals_of_a_difference_from_stated_values_cover_it(n, ratio):
    pairs = zip(draws(n, shift=0.03, stream=4), draws(n, std=ratio * STD, stream=5), strict=True)
    assert_near_95(coverage((stated_difference(a, b).interval for a, b in pairs), 0.03))


@pytest.mark.parametrize(("n", "paired"), [(2, 0.9138), (3, 0.8356), (5, 0.6797), (10, 0.4876)])
def test_one_stated_number_is_one_draw_and_no_control_of_every_seed(n, paired):
    """The number is drawn like the values; exact: t at n − 1 degrees, narrower by √(n + 1) where it is taken for a pair."""
    stated = [number for (number,) in draws(1, stream=8)]
    ours = draws(n, shift=0.03, stream=9)
    found = coverage((stated_difference(a, [b] * n).interval for a, b in zip(ours, stated, strict=True)), 0.03)
    assert_near_95(found)
    before = (
        paired_difference(dict(enumerate(a)), dict.fromkeys(range(n), b)).interval
        for a, b in zip(ours, stated, strict=True)
    )
    assert coverage(before, 0.03) == pytest.approx(paired, abs=0.025)


@pytest.mark.parametrize(("n", "numbers"), [(2, 2), (3, 2), (3, 3), (5, 5), (10, 2), (10, 3)])
def test_stated_numbers_are_a_sample_of_their_own(n, numbers):
    """Fewer numbers than seeds: the last is used for all the rest, as an author does who has not run every control."""
    stated = draws(numbers, stream=10)
    pairs = zip(draws(n, shift=0.03, stream=9), ([*b, *b[-1:] * (n - numbers)] for b in stated), strict=True)
    found = coverage((stated_difference(a, b).interval for a, b in pairs), 0.03)
    assert found >= 0.935, f"coverage {found:.4f} at seed {SEED}"


@pytest.mark.parametrize("n", [3, 10])
def test_stated_numbers_of_a_real_test_set_collide_and_are_covered_all_the_same(n):
    """Accuracies of 360 samples: what is the same number by chance counts as one."""
    ours, stated = ([[round(one * 360) / 360 for one in row] for row in draws(n, stream=stream)] for stream in (11, 12))
    found = coverage((stated_difference(a, b, 1 / 360).interval for a, b in zip(ours, stated, strict=True)), 0.0)
    assert found >= 0.935, f"coverage {found:.4f} at seed {SEED}"


@pytest.mark.parametrize("n", SIZES)
def test_the_equivalence_intervals_cover_what_they_are_named_after(n):
    pairs = zip(draws(n, shift=0.03, stream=6), draws(n, std=2 * STD, stream=7), strict=True)
    found = [tost(a, reported(b), 0.05) for a, b in pairs]
    assert_near_95(coverage((each.interval_95 for each in found), 0.03))
    inner = coverage((each.interval_90 for each in found), 0.03)
    assert abs(inner - 0.90) <= 0.02, f"coverage {inner:.4f} at seed {SEED}"


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("side", [-1, 1])
def test_at_the_margins_edge_a_reproduction_is_claimed_one_time_in_twenty(n, side):
    """Margin 10 std: one of the two tests decides and the size is 5 % exactly, but for the noise of 4000 trials."""
    margin = 10 * STD
    values = draws(n, shift=side * margin, stream=10)
    size = np.mean([tost(each, MEAN, margin).outcome == "reproduced" for each in values])
    assert abs(size - 0.05) <= 3 * math.sqrt(0.05 * 0.95 / TRIALS), f"size {size:.4f} at seed {SEED}"


@pytest.mark.parametrize("n", SIZES)
def test_against_published_figures_the_size_stays_below_five_percent(n):
    margin = 2 * STD
    pairs = zip(draws(n, shift=margin, stream=11), draws(n, stream=12), strict=True)
    size = np.mean([tost(a, reported(b), margin).outcome == "reproduced" for a, b in pairs])
    assert size <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / TRIALS), f"size {size:.4f} at seed {SEED}"


def test_inside_the_margin_differs_is_claimed_less_than_one_time_in_forty():
    values = draws(5, shift=STD, stream=13)
    found = np.mean([tost(each, MEAN, STD).outcome == "differs" for each in values])
    assert found <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / TRIALS)


def test_power_grows_with_seeds_and_reaches_certainty():
    """Same true mean, margin 1.5 std: hopeless with 3 seeds, likely with 10, sure with a margin of 6 std."""
    power = {n: np.mean([tost(each, MEAN, 1.5 * STD).outcome == "reproduced" for each in draws(n)]) for n in SIZES}
    assert power[3] < power[5] < power[10] and power[3] < 0.45 and power[10] > 0.95, power
    assert np.mean([tost(each, MEAN, 6 * STD).outcome == "reproduced" for each in draws(10)]) == 1.0


def test_a_true_difference_of_far_more_than_the_margin_is_seen():
    assert np.mean([tost(each, MEAN + 10 * STD, STD).outcome == "differs" for each in draws(5)]) > 0.99


def test_what_three_seeds_cover_where_they_do_not_scatter_normally():
    """The figures that scatter.scatter_words quotes."""
    generator = np.random.default_rng(SEED)
    lognormal = generator.lognormal(0.0, 1.0, size=(TRIALS, 3)).tolist()
    assert abs(coverage(map(t_interval, lognormal), math.exp(0.5)) - 0.84) <= 0.015
    fallen = generator.random((TRIALS, 3)) < 0.2
    collapsing = (generator.normal(0.0, 0.01, size=(TRIALS, 3)) - fallen).tolist()
    assert abs(coverage(map(t_interval, collapsing), -0.2) - 0.48) <= 0.02
