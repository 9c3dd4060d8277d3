"""Mean over seeds and test samples, which are crossed random effects.

Every seed of a study answers the same test set. A mean over n seeds and T samples therefore has two errors: other seeds would give
another mean, and so would another test set. A t interval over the seeds contains only the first error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fa_registry.statistics.intervals import Interval, around, wilson_interval
from fa_registry.statistics.samples import CONFIDENCE, rounding, steady_error

if TYPE_CHECKING:
    import numpy as np

CROSSED = "crossed effects of seeds and test samples"


@dataclass(frozen=True)
class CrossedMean:
    """Mean of values of n seeds × T samples, with its interval.

    Attributes:
        mean: mean of all values.
        interval: t interval of the mean with `df` degrees of freedom.
        variance: variance of the mean.
        df: degrees of freedom by Satterthwaite.
        seed_share: share of the variance that more seeds would remove, 0..1.
        sample_share: share of the variance that more test samples would remove, 0..1. The rest of the variance is the
            interaction of seeds and samples, which both would remove.
        remark: note for the reader, or an empty string.
    """

    mean: float
    interval: Interval
    variance: float
    df: float
    seed_share: float
    sample_share: float
    remark: str = ""


def with_proportions(interval: Interval, shares: Sequence[float], samples: int, scale: float = 1.0) -> Interval:
    """Extend an interval over seeds by the error of a test set whose single answers are not known.

    The interval is that of a mean or of a difference of shares of `samples` test samples. Each share adds its Wilson interval, as
    if the shares were independent. Answers to the same samples usually agree, so the result is too wide rather than too narrow.
    Half widths are combined by the root of their squares (Zou and Donner 2008, Stat. Med. 27, 1693–1702).

    Args:
        interval: an interval over seeds.
        shares: the mean share of each side, 0..1.
        samples: number of test samples.
        scale: unit of the interval per unit of a share, for example 100 for percentage points.
    """
    wilson = [wilson_interval(share, samples, interval.confidence) for share in shares]
    centre = (interval.low + interval.high) / 2
    half_width = math.hypot(interval.high - centre, *(scale * (item.high - item.low) / 2 for item in wilson))
    return Interval(centre - half_width, centre + half_width, interval.confidence, interval.method)


def crossed_mean(values: Sequence[Sequence[float]] | np.ndarray, confidence: float = CONFIDENCE) -> CrossedMean:
    """Estimate the mean of crossed random effects by an analysis of variance.

    Radiology calls it multi-reader multi-case analysis: Dorfman, Berbaum and Metz 1992, Invest. Radiol. 27, 723–731; Obuchowski and
    Rockette 1995, Commun. Stat. Simul. 24, 285–308; degrees of freedom: Hillis 2007, Stat. Med. 26, 596–619. With the mean squares
    MS of seeds, samples and their interaction,

        variance of the mean = (MS_seed + MS_sample − MS_inter) / (nT)
        df = (MS_seed + MS_sample − MS_inter)² / (MS_seed²/(n−1) + MS_sample²/(T−1) + MS_inter²/((n−1)(T−1))).

    The variance is at least MS_inter/(nT), because an estimated variance component may be negative.
    tests/statistics/test_crossed_effects.py simulates the coverage.

    Args:
        values: (n, T) with n ≥ 2 seeds and T ≥ 2 samples, for example the answer of a run minus the answer of its control.

    Raises:
        ValueError: there are fewer than two seeds or samples, or a value is not finite.
    """
    import numpy as np  # most commands do not need it

    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or min(table.shape) < 2 or not np.isfinite(table).all():
        raise ValueError(
            f"expected finite values of at least two seeds × two samples, found the shape {table.shape}; "
            "train more seeds, and leave out diverged runs"
        )
    seeds, samples = table.shape
    mean, by_seed, by_sample = table.mean(), table.mean(axis=1), table.mean(axis=0)
    rest = table - by_seed[:, None] - by_sample + mean
    ms_seed = samples * float(((by_seed - mean) ** 2).sum()) / (seeds - 1)
    ms_sample = seeds * float(((by_sample - mean) ** 2).sum()) / (samples - 1)
    ms_rest = float((rest**2).sum()) / ((seeds - 1) * (samples - 1))
    total = max(ms_seed + ms_sample - ms_rest, ms_rest)
    weights = ms_seed**2 / (seeds - 1) + ms_sample**2 / (samples - 1) + ms_rest**2 / ((seeds - 1) * (samples - 1))
    df = total**2 / weights if weights else float(seeds - 1)
    floor = rounding(float(abs(table).max()))
    error, remark = steady_error(math.sqrt(total / table.size), floor, seeds)
    shares = [max(square - ms_rest, 0.0) / total if total else 0.0 for square in (ms_seed, ms_sample)]
    interval = around(float(mean), error, df, confidence)
    return CrossedMean(float(mean), interval, error**2, df, *shares, remark)
