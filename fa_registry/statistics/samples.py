"""Summaries of a sample, computed from its values or published as mean ± std."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real

CONFIDENCE = 0.95
LARGEST = 1e150  # sums and interval ends of larger values may overflow float64
NO_SPREAD = "no spread beyond rounding errors, so the interval is narrower than {n} values can justify"


@dataclass(frozen=True)
class Summary:
    """Summary of n values: mean, standard deviation and 95 % t interval.

    `std` (ddof 1) and the ends of the interval, `low` and `high`, are None if n < 2.
    """

    n: int
    mean: float
    std: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Reported:
    """Sample of n ≥ 2 values of which only mean and standard deviation are known.

    `std` must have ddof 1. Multiply a standard deviation with ddof 0 by √(n/(n−1)).
    """

    mean: float
    std: float
    n: int

    def __post_init__(self) -> None:
        mean, std = finite((self.mean, self.std), "a mean and a standard deviation")
        if self.std < 0 or not isinstance(self.n, Integral) or self.n < 2:
            raise ValueError(
                f"expected a standard deviation ≥ 0 and an integer n ≥ 2, found std={self.std!r}, n={self.n!r}; "
                "for a value published without a standard deviation, pass the number instead of Reported"
            )
        for name, value in (("mean", mean), ("std", std), ("n", int(self.n))):
            object.__setattr__(self, name, value)  # a float32 would round all results computed from it


def summary(values: Iterable[float]) -> Summary:
    """Compute mean, sample standard deviation and Student-t 95 % interval of the mean.

    Raises:
        ValueError: there are no values, or a value is not finite, for example that of a diverged run.
    """
    numbers = finite(values, "a summary")
    if len(numbers) == 1:
        return Summary(1, numbers[0], None, None, None)
    sample = _figures(numbers)
    half_width = quantile(sample.n - 1) * standard_error(sample)
    return Summary(sample.n, sample.mean, sample.std, sample.mean - half_width, sample.mean + half_width)


def reported(values: Iterable[float], purpose: str = "a sample with a spread") -> Reported:
    """Compute mean, std (ddof 1) and n of at least two values.

    Args:
        purpose: name of the values in error messages.

    Raises:
        ValueError: there are fewer than two values, or a value is not finite.
    """
    return _figures(finite(values, purpose, least=2))


def _figures(numbers: tuple[float, ...]) -> Reported:
    """Compute the mean and the std.

    The sum is exact, and the mean is clipped to the range of the values. The mean of equal values is exactly this value, and
    their std is 0, not 1e-17. hypot scales the deviations before it squares them; therefore deviations of 1e-170 have a std >
    0, although the sum of their squares would be 0.
    """
    mean = min(max(math.fsum(numbers) / len(numbers), min(numbers)), max(numbers))
    std = math.hypot(*(number - mean for number in numbers)) / math.sqrt(len(numbers) - 1)
    return Reported(mean, std, len(numbers))


def finite(values: Iterable[float], purpose: str, least: int = 1) -> tuple[float, ...]:
    """Check that all values are finite, and return the values as floats.

    Args:
        purpose: name of the values in error messages.
        least: smallest number of values.

    Raises:
        ValueError: there are too few values, a value is not a finite number, or `values` is a mapping.
    """
    if isinstance(values, Mapping):
        raise ValueError(f"{purpose}: expected a list of values, found a mapping {dict(values)!r}; pass its .values()")
    numbers = tuple(values)
    if len(numbers) < least:
        minimum_text = "one value" if least == 1 else f"{least} values"
        raise ValueError(
            f"{purpose} needs at least {minimum_text}, found {len(numbers) or 'none'}; train or select more seeds"
        )
    # float() first: a comparison in float32 would convert the limit to inf
    invalid = [repr(value) for value in numbers if not (isinstance(value, Real) and abs(float(value)) <= LARGEST)]
    if invalid:
        raise ValueError(
            f"{purpose}: expected finite values up to {LARGEST:g}, found {', '.join(invalid[:5])} among {len(numbers)} values; "
            "exclude diverged runs by name, and report the exclusion"
        )
    return tuple(float(value) for value in numbers)


def standard_error(sample: Reported) -> float:
    """Compute the standard error of the mean, std/√n."""
    return sample.std / math.sqrt(sample.n)


def rounding(*numbers: float) -> float:
    """Return the float64 rounding error of a difference of these numbers.

    The rounding error is never 0, so it can be a divisor.
    """
    return max(4 * sys.float_info.epsilon * max(map(abs, numbers)), sys.float_info.min)


def steady_error(raw: float, floor: float, n: int) -> tuple[float, str]:
    """Return the larger of the standard error and the rounding error, with a remark.

    The remark is empty if the standard error is larger. Without the rounding error as lower limit, 0.1 + 0.2 measured three
    times would differ significantly from 0.3, and equal values would lead to 0/0.

    Args:
        raw: standard error.
        floor: rounding error.
        n: number of values, for the remark.
    """
    return (raw, "") if raw > floor else (floor, NO_SPREAD.format(n=n))


def quantile(df: float, confidence: float = CONFIDENCE) -> float:
    """Return q such that Student's t is within ±q with probability `confidence`."""
    from scipy import special  # takes 0.2 s, which most commands do not need

    return float(special.stdtrit(df, (1 + confidence) / 2))


def upper_tail(t: float, df: float) -> float:
    """Compute P(T ≥ t) of Student's t distribution.

    The function uses the lower tail of −t, because 1 − P(T ≤ t) has no correct digits for t above about 10.
    """
    from scipy import special

    return float(special.stdtr(df, -t))


def rank_p_value(observed: float, null: Iterable[float]) -> float:
    """Compute the one-sided rank p-value (1 + #{null ≥ observed}) / (n + 1).

    The p-value is small for a large `observed`. It is at least 1/(n + 1), because the observed value is one of the n + 1 draws
    (Phipson & Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9(1), 39). With n = 20 draws, the smallest p is 1/21 = 0.048.

    Raises:
        ValueError: `null` is empty, or a number is not finite.
    """
    (value,), draws = finite([observed], "the observed value"), finite(null, "a null distribution")
    return (1 + sum(draw >= value for draw in draws)) / (len(draws) + 1)


def holm(p_values: Iterable[float]) -> tuple[float, ...]:
    """Compute Holm's adjusted p-values, in the order of `p_values`.

    All hypotheses whose adjusted p-value is at most α may be rejected together at level α, for any dependence between the
    p-values. The i-th smallest of m p-values is multiplied by m − i + 1. The products, limited to 1, are then increased where
    necessary, so they have the same order as the p-values (Holm 1979, Scand. J. Statist. 6, 65). The products are rounded to 12
    digits; otherwise 3 × 1/60 would exceed .05.

    Raises:
        ValueError: a p-value is outside 0..1.
    """
    values = tuple(p_values)
    if invalid := [value for value in values if not 0 <= value <= 1]:
        raise ValueError(f"expected p-values from 0 to 1, found {invalid!r}")
    adjusted, running_maximum = [0.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        running_maximum = max(running_maximum, min(1.0, round((len(values) - rank) * values[index], 12)))
        adjusted[index] = running_maximum
    return tuple(adjusted)
