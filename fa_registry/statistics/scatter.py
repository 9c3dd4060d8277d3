"""Scatter of values over seeds: tests for outliers and for normality."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fa_registry.statistics.intervals import level_text
from fa_registry.statistics.samples import CONFIDENCE, finite, reported

# Smallest sample that is tested for normal scatter.
TESTED = 8  # Shapiro and Wilk's test rejects log-normal scatter in 48 % of samples of 8, in 9 % of samples of 3


def far_value(values: Sequence[float], level: float, gap: float) -> int | None:
    """Return the index of an outlier, or None if there is no outlier.

    Args:
        values: one value per seed. For fewer than three values, the result is None.
        level: significance level, from 0 to 1, of Grubbs' two-sided test for one outlier (Grubbs 1969, Technometrics 11, 1).
        gap: smallest distance of an outlier from the nearest other value, in the unit of the values. Without this minimum, three
            values of which two are equal would always have an outlier.

    Raises:
        ValueError: a value is not finite.
    """
    numbers = finite(values, "a test for an outlier")
    if len(numbers) < 3:
        return None
    sample, n = reported(numbers), len(numbers)
    index = max(range(n), key=lambda place: abs(numbers[place] - sample.mean))
    nearest = min(abs(numbers[index] - other) for position, other in enumerate(numbers) if position != index)
    if nearest < gap or not sample.std:
        return None
    from scipy import special

    t = float(special.stdtrit(n - 2, 1 - level / (2 * n)))
    critical = (n - 1) / math.sqrt(n) * t / math.hypot(t, math.sqrt(n - 2))
    return index if abs(numbers[index] - sample.mean) / sample.std > critical else None


def scatter_text(values: Sequence[float]) -> str:
    """Return a sentence about the normality assumption of the t interval.

    For fewer than two values, return an empty string. For TESTED = 8 values or more, the sentence contains the result of the test
    of Shapiro and Wilk (1965, Biometrika 52, 591). For fewer values, the sentence states how often the interval contains the
    true mean. tests/statistics/test_coverage.py simulates these percentages.
    """
    n = len(values)
    if n < 2:
        return ""
    assumed = f"The {level_text(CONFIDENCE)} interval assumes that the values of the seeds are normally distributed"
    if n < TESTED:
        return (
            f"{assumed}; {n} seeds are too few to test this. The interval of three seeds contains the true mean in 95 % of studies "
            "for a normal distribution and in 84 % for a log-normal distribution. If one seed in five "
            "collapses, the interval contains the true mean in 48 % of studies"
        )
    if min(values) == max(values):
        return f"{assumed}; all {n} values are equal"
    from scipy import stats  # imported here: it takes half a second, which a report of few seeds does not need

    p = float(stats.shapiro(values).pvalue)
    compatibility = "not compatible" if p < 1 - CONFIDENCE else "compatible"
    return f"{assumed}; the values are {compatibility} with this assumption (Shapiro-Wilk test, {n} seeds, p = {p:.2g})"
