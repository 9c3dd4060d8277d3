"""Intervals of a mean (Student's t) and of a proportion (Wilson).

The module also computes the confidence level after interim analyses, the number of seeds that a study needs, and which seeds are
far from the others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from fa_registry.statistics.samples import CONFIDENCE, finite, quantile, reported, standard_error

POWER = 0.8  # the usual power; at 50 %, half of all studies would not decide
MOST_DF = 1e6  # the t distribution is normal for every use here
NONCENTRAL = 30.0  # T exceeds every relevant quantile with certainty; for larger values scipy's series is inaccurate
LEAST_SEEDS = 3  # fewer seeds decide nothing: one seed has no spread, and of two seeds none can be an outlier
MOST_SEEDS = 1000  # if a study needs more seeds, the mean is practically equal to the limit


@dataclass(frozen=True)
class Interval:
    """Interval from `low` to `high`, in the unit of the values.

    `method` is "t" or "wilson".
    """

    low: float
    high: float
    confidence: float
    method: str


def excludes(interval: Interval, value: float) -> bool:
    """Return whether the value is outside the interval.

    The ends belong to the interval.
    """
    return value < interval.low or value > interval.high


def around(centre: float, error: float, df: float, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval centre ± t quantile × standard error."""
    half_width = quantile(df, confidence) * error
    return Interval(centre - half_width, centre + half_width, confidence, "t")


def t_interval(values: Iterable[float], confidence: float = CONFIDENCE) -> Interval:
    """Compute the Student-t interval of the mean of n ≥ 2 values.

    Source: Student 1908. If all values are equal, the interval is a point.

    Raises:
        ValueError: there are fewer than two values, a value is not finite, or the confidence is outside 0..1.
    """
    sample = reported(values, "a t interval")
    return around(sample.mean, standard_error(sample), sample.n - 1, _proper(confidence))


def with_resolution(interval: Interval, half_step: float) -> Interval:
    """Return the interval, whose half width becomes at least half a step of the values.

    A value that is a number of test samples is known only to half a sample. Therefore, equal values are no certainty.
    """
    centre = (interval.low + interval.high) / 2
    return replace(interval, low=min(interval.low, centre - half_step), high=max(interval.high, centre + half_step))


def wilson_interval(share: float, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Compute the interval of a proportion of n independent samples.

    Source: Wilson 1927, JASA 22, 209–212. The interval describes the proportions that another test set of this size might have. In
    contrast to the usual ±√(p(1−p)/n), the interval stays inside 0..1, and its width at the proportions 0 and 1 is not zero.

    Args:
        share: proportion from 0 to 1: a fraction of n samples, or a mean of several such fractions.
        n: number of samples.

    Raises:
        ValueError: the proportion is outside 0..1, or n < 1.
    """
    if not 0 <= share <= 1 or n < 1:
        raise ValueError(
            f"expected a proportion from 0 to 1 and a number of samples n ≥ 1, found {share!r} and n = {n!r}"
        )
    from scipy import special

    z = float(special.ndtri((1 + _proper(confidence)) / 2))
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half_width = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(max(0.0, centre - half_width), min(1.0, centre + half_width), confidence, "wilson")


def look_confidence(interim_analysis: int, confidence: float = CONFIDENCE) -> float:
    """Return the confidence level at interim analysis number `interim_analysis`.

    The levels are 95 %, 97.5 %, 99.17 %, 99.58 %, … At analysis k ≥ 2, the error probability is α/(k(k−1)). The sum of 1/(k(k−1))
    over k ≥ 2 is 1, so all later analyses together have the same error probability as the first analysis.

    Seeds may therefore be added until the interval excludes the limit that the study tests. The probability of an error to one
    side is 2.5 % for a single analysis, and at most α = 5 % for any number of analyses. This is Bonferroni's bound, which is
    valid for any dependence between the analyses.

    Args:
        interim_analysis: number of the interim analysis, starting at 1.
        confidence: confidence level of a single analysis.

    Raises:
        ValueError: `interim_analysis` is below 1.
    """
    if interim_analysis < 1:
        raise ValueError(f"expected the number of the interim analysis, 1 or more, found {interim_analysis!r}")
    return 1 - (1 - _proper(confidence)) / max(1, interim_analysis * (interim_analysis - 1))


def seeds_to_plan(distance: float, std: float, floor: float = 0.0, power: float = POWER) -> int | None:
    """Return the number of seeds with which a study decides with probability `power`.

    The result is the smallest such number, for a study whose number of seeds is fixed before the runs. A study decides if the
    95 % t interval is completely on one side of the tested limit. The probability of a decision follows from the noncentral t
    distribution, with Satterthwaite's degrees of freedom if there is a floor. Return None if more than MOST_SEEDS seeds are needed.

    Args:
        distance: distance of the true mean from the tested limit, > 0.
        std: standard deviation over seeds.
        floor: standard error that more seeds do not reduce, such as that of the test set.
        power: probability of a decision.
    """
    import numpy as np
    from scipy import special

    counts = np.arange(2, MOST_SEEDS + 1)
    variance = std**2 / counts
    error = np.sqrt(variance + floor**2)
    df = np.minimum((counts - 1) * (1 + floor**2 / variance) ** 2, MOST_DF) if floor else counts - 1
    critical_t = special.stdtrit(df, (1 + CONFIDENCE) / 2)
    miss_probability = special.nctdtr(df, np.minimum(distance / error, NONCENTRAL), critical_t)
    sufficient_indices = np.flatnonzero(1 - miss_probability >= power)
    return int(counts[sufficient_indices[0]]) if len(sufficient_indices) else None


def std_factors(n: int, confidence: float = 0.8) -> tuple[float, float]:
    """Return the interval of a standard deviation, as factors.

    The factors multiply the standard deviation of n normal values.

    Source: the χ² distribution of the variance, as in Hahn and Meeker 1991, Statistical Intervals. Three values show a standard
    deviation only to the factors 0.66 and 3.08.
    """
    from scipy import special

    low, high = (special.chdtri(n - 1, side) for side in ((1 - confidence) / 2, (1 + confidence) / 2))
    return math.sqrt((n - 1) / low), math.sqrt((n - 1) / high)


def level_text(confidence: float) -> str:
    """Return a confidence level as text: `95 %`, `97.5 %`, `99.17 %`."""
    return f"{100 * confidence:.4g} %"


def _proper(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence level between 0 and 1, found {confidence!r}; for 95 %, pass 0.95")
    return confidence


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
