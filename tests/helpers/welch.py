"""Welch's interval of a difference of two means, as scipy computes it."""

from __future__ import annotations

from collections.abc import Iterable

from scipy import stats

from fa_registry.statistics import CONFIDENCE, Interval


def welch_interval(a: Iterable[float], b: Iterable[float]) -> Interval:
    """Return the 95 % interval of mean(a) − mean(b)."""
    low, high = stats.ttest_ind(list(a), list(b), equal_var=False).confidence_interval()
    return Interval(low, high, CONFIDENCE, "scipy")
