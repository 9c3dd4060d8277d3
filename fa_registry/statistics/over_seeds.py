"""Mean of readings over seeds, arithmetic or geometric, with its deviation and interval."""

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
    """A metric over seeds.

    Args:
        average: ARITHMETIC or GEOMETRIC.
        mean: the mean, or why there is none.
        n: number of seeds with a value.
        of: number of all seeds.
        terms: the averaged number of each seed: decimal logarithms if the mean is geometric, empty if a value is 0.
    """

    average: str
    mean: Reading
    n: int
    of: int
    terms: tuple[float, ...] = ()

    @property
    def std(self) -> Reading:
        """Return the standard deviation (ddof 1); for a geometric mean the factor 10^std of the logarithms."""
        return self._figure("std")

    @property
    def low(self) -> Reading:
        """Return the lower end of the 95 % t interval of the mean; computed on logarithms if geometric."""
        return self._figure("low")

    @property
    def high(self) -> Reading:
        """Return the upper end of that interval."""
        return self._figure("high")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return both ends; None if there are none."""
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
            return Reading(None, "no interval: 0 has no logarithm")
        found = self._summary
        if self.average == ARITHMETIC:
            return Reading(getattr(found, name))
        if max(abs(found.low), abs(found.high), found.std) > LARGEST_DECADES:
            return Reading(None, "no interval: it is wider than the range of numbers")
        return Reading(10.0 ** getattr(found, name))


def mean_over(readings: Iterable[tuple[int, Reading]], average: str) -> OverSeeds:
    """Return the mean over seeds of (seed, reading), by ARITHMETIC or GEOMETRIC `average`.

    Runs of one seed count as one. A seed without a value is not counted in n; a value that is not finite leaves no
    mean.
    """
    given = tuple(readings)
    of = len({seed for seed, _ in given})
    broken = [reading for _, reading in given if reading.not_finite]
    known = [reading.value for _, reading in given if reading.value is not None]
    if broken or not known:
        return OverSeeds(average, next(iter((*broken, *(one for _, one in given))), Reading(None, "no run")), 0, of)
    low, high = min(known), max(known)
    if (average == GEOMETRIC and low <= 0 < high - low) or (average == ARITHMETIC and max(-low, high) > LARGEST):
        return OverSeeds(average, Reading(None, f"no {average} mean of {low:.3g} to {high:.3g}"), 0, of)
    values = tuple(seed_values(given, average).values())
    terms = values if average == ARITHMETIC else tuple(map(math.log10, values)) if low > 0 else ()
    return OverSeeds(average, Reading(_mean(values, average)), len(values), of, terms)


def seed_values(readings: Iterable[tuple[int, Reading]], average: str) -> dict[int, float]:
    """Return seed → value for the seeds with a value; several runs of one seed are averaged."""
    several: dict[int, list[float]] = {}
    for seed, reading in readings:
        if reading.value is not None:
            several.setdefault(seed, []).append(reading.value)
    return {seed: _mean(values, average) for seed, values in several.items()}


def _mean(values: Sequence[float], average: str) -> float:
    """Return the mean, clipped to the values' range: the mean of equal values is exactly that value."""
    low, high = min(values), max(values)
    if low == high:
        return low
    logarithms = average == GEOMETRIC
    mean = math.fsum(map(math.log10, values) if logarithms else values) / len(values)
    return min(max(10.0**mean if logarithms else mean, low), high)
