"""Intervals of a mean (Student's t or bootstrap) and of a share (Wilson's score).

Also the confidence level after interim analyses, and the number of seeds that a study needs. A bootstrap is refused
where its coverage is too low.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import special

from fa_registry.statistics.samples import CONFIDENCE, finite, quantile, reported, standard_error

BOOTSTRAP_LEAST = 20
RESAMPLES = 9999
POWER = 0.8  # the usual power; at 50 % the outcome of a study is a coin toss
NONCENTRAL = 30.0  # here every t of interest is exceeded with certainty; beyond it scipy's series loses its digits
MOST_SEEDS = 1000  # if more are needed, the mean is practically equal to the limit


@dataclass(frozen=True)
class Interval:
    """Interval low..high in the unit of the values; method: "t", "bootstrap" or "wilson"."""

    low: float
    high: float
    confidence: float
    method: str


def excludes(interval: Interval, value: float) -> bool:
    """Return whether the value is outside; the ends belong to the interval."""
    return value < interval.low or value > interval.high


def around(centre: float, error: float, df: float, confidence: float = CONFIDENCE) -> Interval:
    """Return centre ± the t quantile times the standard error."""
    half = quantile(df, confidence) * error
    return Interval(centre - half, centre + half, confidence, "t")


def t_interval(values: Iterable[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the Student-t interval of the mean of n ≥ 2 values; a point if all are equal.

    Source: Student 1908.

    Raises:
        ValueError: fewer than two values, one that is not finite, or a confidence outside 0..1.
    """
    sample = reported(values, "a t interval")
    return around(sample.mean, standard_error(sample), sample.n - 1, _proper(confidence))


def bootstrap_interval(
    values: Iterable[float], confidence: float = CONFIDENCE, *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Return the expanded percentile bootstrap interval of the mean.

    Hesterberg 2015, The American Statistician 69, 371–386. The plain percentile interval uses normal quantiles and a
    ddof-0 spread: at n = 20 it covers 93 % instead of the nominal 95 % (simulated). Requesting the percentiles of
    Φ(−t·√(n/(n−1))) instead of α/2 from scipy corrects both.

    Args:
        values: at least BOOTSTRAP_LEAST values.
        confidence: level of the interval.
        seed: an integer, not a shared generator, so that the same values give the same interval in any order of calls.
        resamples: number of resamples.

    Raises:
        ValueError: a value is not finite, or n < 20: at n = 3 the percentile interval is (min, max), which misses if
            all three
            values are on one side of the mean, 2 times in 8.
    """
    numbers = finite(values, "a bootstrap interval")
    _proper(confidence)
    if len(numbers) < BOOTSTRAP_LEAST:
        raise ValueError(
            f"a bootstrap interval needs at least {BOOTSTRAP_LEAST} values, found {len(numbers)}; a percentile bootstrap "
            "covers 75 % at n = 3 and 84 % at n = 5 where 95 % is claimed: use t_interval"
        )
    if min(numbers) == max(numbers):
        return Interval(numbers[0], numbers[0], confidence, "bootstrap")
    from scipy import stats  # imported here: it takes half a second, which a report of t intervals does not need

    interval = stats.bootstrap(
        (np.array(numbers),),
        np.mean,
        confidence_level=_expanded(confidence, len(numbers)),
        n_resamples=resamples,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(interval.low), float(interval.high), confidence, "bootstrap")


def wilson_interval(share: float, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of a share among n independent samples (Wilson 1927, JASA 22, 209–212).

    It describes what another test set of this size might show. It stays inside 0..1 and is not a point at 0 or 1,
    unlike the usual ±√(p(1−p)/n).

    Args:
        share: 0 to 1, a fraction of n or the mean of several.
        n: number of samples.
        confidence: level of the interval.

    Raises:
        ValueError: the share is outside 0..1, or n < 1.
    """
    if not 0 <= share <= 1 or n < 1:
        raise ValueError(f"expected a share from 0 to 1 of n ≥ 1 samples, found {share!r} of {n!r}")
    z = float(special.ndtri((1 + _proper(confidence)) / 2))
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(max(0.0, centre - half), min(1.0, centre + half), confidence, "wilson")


def look_confidence(look: int, confidence: float = CONFIDENCE) -> float:
    """Return the level of the interval at interim analysis `look`: 95 %, 97.5 %, 99.17 %, 99.58 %, …

    At analysis k ≥ 2 the error is α/(k(k−1)), and Σ 1/(k(k−1)) over k ≥ 2 is 1: all later analyses together may err as
    often as the first alone. Adding seeds until the interval leaves the limit therefore errs to one side with
    probability α at most (5 %; 2.5 % for a single analysis), for any number of analyses: Bonferroni's bound, which
    holds for any dependence between them.

    Raises:
        ValueError: `look` is below 1.
    """
    if look < 1:
        raise ValueError(f"expected the number of the interim analysis, from 1, found {look!r}")
    return 1 - (1 - _proper(confidence)) / max(1, look * (look - 1))


def seeds_to_plan(distance: float, std: float, power: float = POWER) -> int | None:
    """Return the fewest seeds, fixed in advance, that decide with probability `power`.

    Decided means that the 95 % t interval is wholly on one side of the limit, by the noncentral t distribution. None
    beyond MOST_SEEDS.

    Args:
        distance: of the true mean from the limit, > 0.
        std: standard deviation of one seed.
        power: probability of a decision.
    """
    counts = np.arange(2, MOST_SEEDS + 1)
    reached = special.stdtrit(counts - 1, (1 + CONFIDENCE) / 2)
    missed = special.nctdtr(counts - 1, np.minimum(distance * np.sqrt(counts) / std, NONCENTRAL), reached)
    enough = np.flatnonzero(1 - missed >= power)
    return int(counts[enough[0]]) if len(enough) else None


def level_text(confidence: float) -> str:
    """Return a confidence level as text: `95 %`, `97.5 %`, `99.17 %`."""
    return f"{100 * confidence:.4g} %"


def interval(values: Iterable[float], confidence: float = CONFIDENCE, *, seed: int = 0) -> Interval:
    """Return t_interval below 20 values, else bootstrap_interval; `method` of the result names it."""
    numbers = tuple(values)
    if len(numbers) < BOOTSTRAP_LEAST:
        return t_interval(numbers, confidence)
    return bootstrap_interval(numbers, confidence, seed=seed)


def _expanded(confidence: float, n: int) -> float:
    """Return the percentile level at which the bootstrap interval is as wide as the t interval.

    This holds for normal values.
    """
    return float(2 * special.ndtr(quantile(n - 1, confidence) * math.sqrt(n / (n - 1))) - 1)


def _proper(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence between 0 and 1, found {confidence!r}; 95 % is 0.95")
    return confidence
