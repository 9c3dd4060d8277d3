"""Reproduction as an equivalence test: "no significant difference" from a published number is no evidence of sameness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fa_registry.statistics.differences import welch_error
from fa_registry.statistics.intervals import Interval, around
from fa_registry.statistics.samples import (
    Reported,
    finite,
    reported,
    rounding,
    standard_error,
    steady_error,
    upper_tail,
)

ALPHA = 0.05


@dataclass(frozen=True)
class Equivalence:
    """outcome: "reproduced", "not shown" or "differs"; difference = measured − published, in the unit of the margin.

    p_lower: one-sided p against "the difference is −margin or less"; p_upper: against "+margin or more".
    interval_90 lies inside ±margin exactly where both p are below 0.05; interval_95 decides "differs".
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
    """Two one-sided t tests (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15, 657–680).

    measured: the values, one a seed, or their figures Reported(mean, std, n). A tuple is a list of values.
    published: Reported(mean, std, n), then with Welch's degrees of freedom, or a number, then taken as exact.
    margin: > 0, in the unit of the values, fixed before the runs. A difference of exactly the margin is not inside it.
    "reproduced": both p < 0.05. "differs": the 95 % interval lies wholly outside ±margin. Else "not shown".

    Raises ValueError for a margin that is not positive, fewer than two measured values, or a value that is not finite.
    """
    (margin,) = finite([margin], "the margin")
    if margin <= 0:
        raise ValueError(f"expected a margin > 0, found {margin!r}; fix it in the unit of the values before the runs")
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
    """The published mean, the standard error of the difference and its degrees of freedom."""
    if isinstance(published, Reported):
        return published.mean, *welch_error(sample, published)
    if isinstance(published, Sequence):
        raise ValueError(
            f"expected one published number or Reported(mean, std, n), found {published!r}; wrap the figures in Reported"
        )
    (constant,) = finite([published], "the published figure")
    return constant, standard_error(sample), float(sample.n - 1)
