"""Scatter of values over seeds: tests for outliers and for normality."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import lru_cache

from fa_registry.statistics.intervals import level_text
from fa_registry.statistics.samples import CONFIDENCE, finite

DRAWS = 1_000_000  # simulated values for one critical value
# Smallest sample that is tested for normal scatter.
TESTED = 8  # Shapiro and Wilk's test rejects log-normal scatter in 48 % of samples of 8, in 9 % of samples of 3


def far_values(values: Sequence[float], level: float, gap: float) -> tuple[int, ...]:
    """Return the indices of values that are far from the median.

    The distance is measured in median absolute deviations.

    The median sees several outliers, as long as they are fewer than half of the values. Mean and standard deviation do not: two
    collapsed seeds of five raise the standard deviation so much that neither is far. Source: Hampel 1974, JASA 69, 383–393.

    Args:
        values: one value per seed. For fewer than three values, the result is empty.
        level: probability, from 0 to 1, of an outlier among normally distributed values.
        gap: smallest distance of an outlier from the median, in the unit of the values. Without this minimum, three values of which
            two are equal would always have an outlier.

    Raises:
        ValueError: a value is not finite.
    """
    numbers = finite(values, "a test for outliers")
    if len(numbers) < 3:
        return ()
    centre = statistics.median(numbers)
    distances = [abs(number - centre) for number in numbers]
    limit = _critical(len(numbers), level) * statistics.median(distances)
    return tuple(index for index, distance in enumerate(distances) if distance > limit and distance >= gap)


@lru_cache(maxsize=64)
def _critical(n: int, level: float) -> float:
    """Return a quantile of the largest distance from the median.

    The distance is that of n normal values, in median absolute deviations.

    Simulated with a fixed seed, because no table contains every n and level.
    """
    import numpy as np

    draws = np.random.default_rng(0).normal(size=(max(1000, DRAWS // n), n))
    distances = np.abs(draws - np.median(draws, axis=1, keepdims=True))
    return float(np.quantile(distances.max(axis=1) / np.median(distances, axis=1), 1 - level))


def scatter_text(values: Sequence[float], is_crossed: bool = False) -> str:
    """Return a sentence about the normality assumption of an interval over seeds.

    For fewer than two values, return an empty string. For TESTED = 8 values or more, the sentence contains the result of the test
    of Shapiro and Wilk (1965, Biometrika 52, 591). For fewer values, the sentence states how often a t interval contains the
    true mean. tests/statistics/test_coverage.py simulates these percentages.

    Args:
        values: one value per seed.
        is_crossed: whether the interval also contains the error of the test set, see `crossed_mean`. The percentages are not those
            of such an interval.
    """
    n = len(values)
    if n < 2:
        return ""
    assumed = f"The {level_text(CONFIDENCE)} interval assumes that the values of the seeds are normally distributed"
    if n < TESTED:
        too_few = f"{assumed}; {n} seeds are too few to test this"
        if is_crossed:
            return too_few
        return (
            f"{too_few}. The interval of three seeds contains the true mean in 95 % of studies "
            "for a normal distribution and in 84 % for a log-normal distribution. If one seed in five "
            "collapses, the interval contains the true mean in 48 % of studies"
        )
    if min(values) == max(values):
        return f"{assumed}; all {n} values are equal"
    from scipy import stats  # imported here: it takes half a second, which a report of few seeds does not need

    p = float(stats.shapiro(values).pvalue)
    compatibility = "not compatible" if p < 1 - CONFIDENCE else "compatible"
    return f"{assumed}; the values are {compatibility} with this assumption (Shapiro-Wilk test, {n} seeds, p = {p:.2g})"
