"""Differences of two means, their intervals, and equivalence tests.

One method beats another only if the interval of the difference excludes 0. Two one-sided tests show equivalence: the complete
interval must be within a margin that was fixed before the runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fa_registry.statistics.intervals import Interval, around
from fa_registry.statistics.samples import (
    CONFIDENCE,
    Reported,
    finite,
    reported,
    rounding,
    standard_error,
    steady_error,
    upper_tail,
)

PAIRED, WELCH, ONE_STATED = "paired t test", "Welch's t test", "t test against one stated value"


@dataclass(frozen=True)
class PairedDifference:
    """Mean of a − b over the seeds that a and b have in common.

    If there is only one pair, the result is provisional, and std, interval, p and df are None. `seeds` are the common seeds,
    sorted. `only_a` are the seeds that b does not have. `only_b` are the seeds that a does not have. The mean does not include
    these seeds.
    """

    mean: float
    std: float | None
    interval: Interval | None
    p: float | None
    df: int | None
    seeds: tuple[int, ...]
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    remark: str


@dataclass(frozen=True)
class StatedDifference:
    """Difference mean(a) − mean(b), where b are values that an author stated.

    `interval` is None if a has only one value. `draws` is the number of different values in b. `test` is the name of the test.
    """

    mean: float
    interval: Interval | None
    draws: int
    test: str
    remark: str


def paired_difference(
    a: Mapping[int, float], b: Mapping[int, float], confidence: float = CONFIDENCE
) -> PairedDifference:
    """Compute the paired t test and its interval over the common seeds (Student 1908).

    The interval excludes 0 exactly if p < 1 − confidence.

    Args:
        a: seed → value.
        b: seed → value.

    Raises:
        ValueError: there is no common seed, or a value is not finite. Values of unmatched seeds are also checked.
    """
    a, b = _by_seed(a, "a"), _by_seed(b, "b")
    seeds = tuple(sorted(a.keys() & b.keys()))
    only_a, only_b = tuple(sorted(a.keys() - b.keys())), tuple(sorted(b.keys() - a.keys()))
    if not seeds:
        raise ValueError(
            f"a paired difference needs common seeds, but a has the seeds {list(only_a)} and b has the seeds {list(only_b)}; "
            "train both with the same seeds"
        )
    differences = [a[seed] - b[seed] for seed in seeds]
    if len(seeds) == 1:
        remark = "no interval, because there is only one pair"
        return PairedDifference(differences[0], None, None, None, None, seeds, only_a, only_b, remark)
    sample, df = reported(differences), len(seeds) - 1
    floor = rounding(*(values[seed] for values in (a, b) for seed in seeds))
    error, remark = steady_error(standard_error(sample), floor, df + 1)
    bounds, p = around(sample.mean, error, df, confidence), _two_sided(sample.mean / error, df)
    return PairedDifference(sample.mean, sample.std, bounds, p, df, seeds, only_a, only_b, remark)


def stated_difference(
    a: Iterable[float], b: Iterable[float], resolution: float = 0.0, confidence: float = CONFIDENCE
) -> StatedDifference:
    """Compute the difference between measured values a and stated values b.

    The values are not paired by seed. There are three cases:

    - All stated values are different: they are an independent sample (Welch 1947).
    - Some stated values are equal: a repeated value has more weight but adds no information, so the degrees of freedom are the
      smallest possible number.
    - All stated values are equal, or there is only one: they count as one draw of unknown origin. The test is Student's t with
      variance s²(1 + 1/n) and n − 1 degrees of freedom, where s is the standard deviation of a and n its number of values. The
      interval is the prediction interval of one further value (Hahn and Meeker 1991, Statistical Intervals).

    The coverage is the probability that the interval contains the true difference. tests/statistics/test_coverage.py simulates the
    coverage with 4000 samples per case, in which a and b have normal distributions of equal spread:

    - With one stated value, the coverage of this function's interval is 95 %.
    - With two or more different stated values, the coverage is at least 93.5 %, the minimum that protocol.md §3 requires.
    - A paired test with one stated value as the control of every seed is wrong: its coverage is only 83.6 % for n = 3 and 48.8 %
      for n = 10.

    If the stated values come from a wider distribution than a, no interval has the nominal coverage.

    Args:
        a: measured values.
        b: stated values.
        resolution: smallest difference of two values in their unit, such as one sample of the test set. Stated values that
            round to the same multiple of `resolution` count as equal.

    Raises:
        ValueError: a side has no value, or a value is not finite.
    """
    values, stated = finite(a, "side a"), finite(b, "the values stated by the author")
    distinct_values = {round(value / resolution) if resolution else value: value for value in stated}
    mean = math.fsum(values) / len(values) - math.fsum(stated) / len(stated)
    if len(values) < 2:
        return StatedDifference(mean, None, len(distinct_values), "", "no interval, because there is only one value")
    first, test = reported(values, "a difference from stated values"), WELCH
    if len(distinct_values) == 1:
        test = ONE_STATED
        raw, df = first.std * math.sqrt(1 + 1 / first.n), float(first.n - 1)
    elif len(distinct_values) == len(stated):
        raw, df = welch_error(first, reported(stated, "a difference from stated values"))
    else:
        counts = Counter(round(value / resolution) if resolution else value for value in stated)
        weight = math.hypot(*counts.values()) / len(stated)  # √Σw², which is 1/√n for equal weights
        raw = math.hypot(standard_error(first), reported(distinct_values.values()).std * weight)
        df = float(min(first.n, len(distinct_values)) - 1)
    error, remark = steady_error(raw, rounding(*values, *stated), first.n)
    return StatedDifference(mean, around(mean, error, df, confidence), len(distinct_values), test, remark)


def welch_error(a: Reported, b: Reported) -> tuple[float, float]:
    """Compute the standard error of mean(a) − mean(b) and its degrees of freedom.

    The degrees of freedom are those of Welch–Satterthwaite. The formula uses each side's share of the variance, because the
    textbook form squares variances and underflows. If both sides have no spread, the degrees of freedom are the smallest value
    that the formula can return.
    """
    error_a, error_b = standard_error(a), standard_error(b)
    error = math.hypot(error_a, error_b)
    if error == 0:
        return 0.0, float(min(a.n, b.n) - 1)
    share_a, share_b = (error_a / error) ** 2, (error_b / error) ** 2
    return error, 1 / (share_a**2 / (a.n - 1) + share_b**2 / (b.n - 1))


def _by_seed(values: Mapping[int, float], side: str) -> dict[int, float]:
    if not isinstance(values, Mapping):
        raise ValueError(
            f"side {side}: expected a mapping of seed to value, found {values!r}; pairs are formed by seed"
        )
    return dict(zip(values, finite(values.values(), f"side {side}"), strict=True))


def _two_sided(t: float, df: float) -> float:
    return min(1.0, 2 * upper_tail(abs(t), df))


ALPHA = 0.05


@dataclass(frozen=True)
class Equivalence:
    """Outcome of an equivalence test: "reproduced", "not shown" or "differs".

    Attributes:
        difference: measured mean − published mean, in the unit of the margin.
        p_lower: one-sided p-value against the hypothesis that the difference is −margin or less.
        p_upper: one-sided p-value against the hypothesis that the difference is +margin or more.
        interval_90: 90 % interval of the difference; it is inside ±margin exactly if both p-values are below 0.05.
        interval_95: 95 % interval of the difference, which decides the outcome "differs".
    """

    outcome: str
    difference: float
    margin: float
    df: float
    p_lower: float
    p_upper: float
    interval_90: Interval
    interval_95: Interval
    remark: str


def tost(measured: Iterable[float] | Reported, published: Reported | float, margin: float) -> Equivalence:
    """Test equivalence by two one-sided t tests.

    Source: Schuirmann 1987, J. Pharmacokinet. Biopharm. 15, 657–680. The outcome is "reproduced" if both p-values
    are below 0.05. It is "differs" if the 95 % interval is completely outside ±margin. Otherwise it is "not shown".

    Args:
        measured: one value per seed, or their summary Reported(mean, std, n). A tuple is interpreted as a list of values.
        published: Reported(mean, std, n) or a number. For Reported, the tests use Welch's degrees of freedom. A number is treated
            as exact.
        margin: a number > 0 in the unit of the values, fixed before the runs. A difference of exactly the margin is outside the
            margin.

    Raises:
        ValueError: the margin is not positive, there are fewer than two measured values, or a value is not finite.
    """
    (margin,) = finite([margin], "the margin")
    if margin <= 0:
        raise ValueError(
            f"expected a margin > 0, found {margin!r}; choose the margin before the runs, in the unit of the values"
        )
    sample = measured if isinstance(measured, Reported) else reported(measured, "an equivalence test")
    target, raw, df = _against(sample, published)
    difference = sample.mean - target
    error, remark = steady_error(raw, rounding(sample.mean, target, margin), sample.n)
    p_lower = upper_tail((difference + margin) / error, df)
    p_upper = upper_tail((margin - difference) / error, df)
    inner, outer = around(difference, error, df, 1 - 2 * ALPHA), around(difference, error, df, 1 - ALPHA)
    outcome = "not shown"
    if max(p_lower, p_upper) < ALPHA:
        outcome = "reproduced"
    elif outer.low > margin or outer.high < -margin:
        outcome = "differs"
    return Equivalence(outcome, difference, margin, df, p_lower, p_upper, inner, outer, remark)


def _against(sample: Reported, published: Reported | float) -> tuple[float, float, float]:
    """Return (published mean, standard error, df).

    Standard error and degrees of freedom (df) are those of the difference measured mean − published mean.
    """
    if isinstance(published, Reported):
        return published.mean, *welch_error(sample, published)
    if isinstance(published, Sequence):
        raise ValueError(
            f"expected one published number or Reported(mean, std, n), found {published!r}; wrap the numbers in Reported"
        )
    (constant,) = finite([published], "the published value")
    return constant, standard_error(sample), float(sample.n - 1)
