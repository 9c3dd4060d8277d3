"""Means over seeds, arithmetic or geometric, with std and interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fa_registry.records import Reading
from fa_registry.statistics.samples import LARGEST, Summary, summary

ARITHMETIC, GEOMETRIC = "arithmetic", "geometric"
LARGEST_DECADES = 308.0  # largest power of ten in float64


@dataclass(frozen=True)
class OverSeeds:
    """Mean of one metric over seeds.

    Args:
        average: ARITHMETIC or GEOMETRIC.
        mean: the mean, or a Reading with the reason why there is no mean.
        n: number of seeds with a value.
        of: number of all seeds.
        terms: the averaged numbers, one per seed. For a geometric mean, these are the decimal logarithms of the values. If a value
            is 0, `terms` is empty.
    """

    average: str
    mean: Reading
    n: int
    of: int
    terms: tuple[float, ...] = ()

    @property
    def std(self) -> Reading:
        """Standard deviation over seeds (ddof 1).

        For a geometric mean, this is the factor 10^std, where std is the standard deviation of the decimal logarithms.
        """
        return self._figure("std")

    @property
    def low(self) -> Reading:
        """Lower end of the 95 % t interval of the mean.

        For a geometric mean, the interval is computed from logarithms.
        """
        return self._figure("low")

    @property
    def high(self) -> Reading:
        """Upper end of the 95 % t interval of the mean.

        For a geometric mean, the interval is computed from logarithms.
        """
        return self._figure("high")

    @property
    def interval(self) -> tuple[float, float] | None:
        """The two ends of the 95 % t interval of the mean, or None if there is no interval."""
        ends = self.low.value, self.high.value
        return None if None in ends else ends

    @cached_property  # the most expensive part; tables of many sites and epochs need only the mean
    def _summary(self) -> Summary:
        return summary(self.terms)

    def _figure(self, name: str) -> Reading:
        if self.mean.value is None:
            return self.mean
        if self.n == 1:
            return Reading(None, "one seed: no interval")
        if not self.terms:
            return Reading(None, "no interval, because a value is 0 and has no logarithm")
        sample_summary = self._summary
        if self.average == ARITHMETIC:
            return Reading(getattr(sample_summary, name))
        if max(abs(sample_summary.low), abs(sample_summary.high), sample_summary.std) > LARGEST_DECADES:
            return Reading(None, "no interval, because its ends exceed the range of float64")
        return Reading(10.0 ** getattr(sample_summary, name))


def mean_over(readings: Iterable[tuple[int, Reading]], average: str) -> OverSeeds:
    """Compute the mean of a metric over seeds.

    Several runs with the same seed count as one seed. Seeds without a value are not counted in the field `n` of the result. If a
    value is not finite, there is no mean.

    Args:
        readings: pairs of seed and Reading.
        average: ARITHMETIC or GEOMETRIC.
    """
    seed_readings = tuple(readings)
    seed_count = len({seed for seed, _ in seed_readings})
    non_finite = [reading for _, reading in seed_readings if reading.not_finite]
    defined_values = [reading.value for _, reading in seed_readings if reading.value is not None]
    if non_finite or not defined_values:
        return OverSeeds(
            average,
            next(iter((*non_finite, *(any_reading for _, any_reading in seed_readings))), Reading(None, "no run")),
            0,
            seed_count,
        )
    low, high = min(defined_values), max(defined_values)
    if (average == GEOMETRIC and low <= 0 < high - low) or (average == ARITHMETIC and max(-low, high) > LARGEST):
        return OverSeeds(
            average, Reading(None, f"no {average} mean exists for values from {low:.3g} to {high:.3g}"), 0, seed_count
        )
    values = tuple(seed_values(seed_readings, average).values())
    terms = values if average == ARITHMETIC else tuple(map(math.log10, values)) if low > 0 else ()
    return OverSeeds(average, Reading(_mean(values, average)), len(values), seed_count, terms)


def seed_values(readings: Iterable[tuple[int, Reading]], average: str) -> dict[int, float]:
    """Return a mapping from seed to value. Leave out seeds without a value.

    Several runs with the same seed are averaged.
    """
    values_of_seed: dict[int, list[float]] = {}
    for seed, reading in readings:
        if reading.value is not None:
            values_of_seed.setdefault(seed, []).append(reading.value)
    return {seed: _mean(values, average) for seed, values in values_of_seed.items()}


def _mean(values: Sequence[float], average: str) -> float:
    """Compute the mean, clipped to the range of the values.

    The mean of equal values is therefore exact.
    """
    low, high = min(values), max(values)
    if low == high:
        return low
    logarithms = average == GEOMETRIC
    mean = math.fsum(map(math.log10, values) if logarithms else values) / len(values)
    return min(max(10.0**mean if logarithms else mean, low), high)
