"""Intervals of a mean (Student's t) and of a proportion (Wilson).

The module also computes the confidence level after interim analyses, and the number of seeds that a study needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fa_registry.statistics.samples import CONFIDENCE, quantile, reported, standard_error

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
