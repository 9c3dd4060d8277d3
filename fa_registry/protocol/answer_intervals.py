"""Intervals of a mean over seeds and samples, in the unit of a metric.

The scores of the single samples determine the interval. Without them, the error of the test set is that of a share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from fa_registry.metrics import Headline, headline_of
from fa_registry.records import Measurements, SampleScores
from fa_registry.statistics import (
    CONFIDENCE,
    CrossedMean,
    Interval,
    crossed_mean,
    t_interval,
    with_proportions,
    with_resolution,
)


def with_test_set(
    interval: Interval | None, name: str, headline: Headline, sides: Iterable[Iterable[float]], samples: int
) -> tuple[Interval | None, str]:
    """Return the interval of a test with the error of the test set, and the name of the test.

    Only the error of a share is known without the scores of the samples.
    """
    if interval is None or not headline.is_share or not samples:
        return interval, name
    shares = [min(1.0, max(0.0, mean(side) / headline.scale)) for side in sides]
    return with_proportions(interval, shares, samples, headline.scale), f"{name} and Wilson intervals"


def crossed_scores(
    scores: Sequence[SampleScores | None],
    references: Sequence[SampleScores | None] = (),
    confidence: float = CONFIDENCE,
) -> CrossedMean | None:
    """Return the mean score over seeds and test samples.

    With `references`, this is the mean difference from their scores. Return None if the scores of a seed are not recorded or not
    finite, if the test sets differ in their size, or if there are fewer than two seeds.
    """
    sides = (*scores, *references)
    sizes = {(one.kind, one.samples) for one in sides if one}
    if len(scores) < 2 or not all(sides) or len(sizes) > 1 or sides[0].samples < 2:
        return None
    rows = [one.scores() for one in scores]
    rows = [row - other.scores() for row, other in zip(rows, references, strict=True)] if references else rows
    return crossed_mean(rows, confidence) if all(math.isfinite(row.sum()) for row in rows) else None


def test_scores(measurements: Measurements) -> SampleScores | None:
    """Return the scores of the test samples for the main metric, or None if they are not recorded."""
    return measurements.sample_scores.get(headline_of(measurements).name)


def crossed_metric(
    name: str, measurements: Sequence[Measurements], references: Sequence[Measurements] = ()
) -> CrossedMean | None:
    """Return the mean of a metric over seeds and samples, or the mean difference from `references`.

    Return None as `crossed_scores` does, and also if the runs were measured on different samples.

    Args:
        name: name of the metric.
        measurements: one entry per seed.
        references: one entry per seed, in the same order.
    """
    batches = {one.conventions.get("eval_digest") for one in (*measurements, *references)}
    sides = ([one.sample_scores.get(name) for one in side] for side in (measurements, references))
    return crossed_scores(*sides) if len(batches) == 1 else None


def mean_interval(
    headline: Headline,
    values: Mapping[int, float],
    scores: Iterable[SampleScores | None],
    samples: int,
    confidence: float,
) -> tuple[float, float] | None:
    """Return the interval of the mean main metric, or None for fewer than two values."""
    if len(values) < 2:
        return None
    if crossed := crossed_scores(list(scores), confidence=confidence):
        interval = crossed.interval
    else:
        interval = t_interval(values.values(), confidence)
        share = min(1.0, max(0.0, mean(values.values())))
        interval = with_proportions(interval, [share], samples) if headline.is_share and samples else interval
    return interval_ends(interval, headline.half_sample(samples) / headline.scale)


def interval_ends(interval: Interval | None, half_step: float) -> tuple[float, float] | None:
    """Return both ends of an interval with the resolution of its values, rounded to 1e-9."""
    if interval is None:
        return None
    extended = with_resolution(interval, half_step)
    return round(extended.low, 9), round(extended.high, 9)
