"""Intervals of a mean over seeds and samples, in the unit of a metric.

The scores of the single samples determine the interval. Without them, the error of the test set is that of a share.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from fa_registry.metrics import Headline, headline_of
from fa_registry.records import Measurements, RunRecord, SampleScores
from fa_registry.statistics import (
    CONFIDENCE,
    CROSSED,
    CrossedMean,
    Interval,
    PairedDifference,
    crossed_mean,
    t_interval,
    with_proportions,
    with_resolution,
)

TEST_SAMPLES = "test_samples"  # key of the recorded convention that contains the size of the test set


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


def with_samples(
    difference: PairedDifference,
    name: str,
    scale: float,
    first: Sequence[RunRecord],
    second: Sequence[RunRecord],
) -> PairedDifference:
    """Return a difference of a metric between two groups of runs with the error of its samples.

    A metric without recorded scores keeps the interval over seeds.

    Args:
        difference: difference of the metric over the common seeds.
        name: name of the metric.
        scale: unit of the difference per unit of the metric, for example 100 for percentage points.
        first: runs of the first group, one per seed.
        second: runs of the second group, one per seed.
    """
    sides = ({record.spec.seed: record.measurements for record in side} for side in (first, second))
    crossed = crossed_metric(name, *([side[seed] for seed in difference.seeds] for side in sides))
    if crossed is None:
        return difference
    half_width = scale * (crossed.interval.high - crossed.interval.low) / 2
    interval = Interval(difference.mean - half_width, difference.mean + half_width, CONFIDENCE, CROSSED)
    return dataclasses.replace(difference, interval=interval, remark=crossed.remark)


def sample_interval(records: Sequence[RunRecord], name: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric over seeds and the samples on which it was measured.

    The result is None if only the seeds are known: for a metric without recorded scores, for fewer than two seeds, for several runs
    of a seed, for a seed without a value, and for samples that differ. A main metric without recorded scores has the interval of
    `mean_interval`.
    """
    measurements = {record.spec.seed: record.measurements for record in records}
    readings = {seed: one.scalars.get(name) for seed, one in measurements.items()}
    values = {seed: reading.value for seed, reading in readings.items() if reading and reading.value is not None}
    if not records or len(values) < len(records):
        return None
    headline = headline_of(records[0].measurements)
    if name != headline.name:
        crossed = crossed_metric(name, list(measurements.values()))
        return (crossed.interval.low, crossed.interval.high) if crossed else None
    sizes = {one.conventions.get(TEST_SAMPLES) for one in measurements.values()}
    if len(sizes) > 1 or not all(sizes):
        return None
    return mean_interval(headline, values, map(test_scores, measurements.values()), *sizes, CONFIDENCE)


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
