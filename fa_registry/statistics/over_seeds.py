"""Readings over seeds: the one function that takes their mean, arithmetic or geometric, with its deviation and interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fa_registry.records import Reading
from fa_registry.statistics.samples import LARGEST, Summary, summary

ARITHMETIC, GEOMETRIC = "arithmetic", "geometric"
LARGEST_DECADES = 308.0  # where doubles end


@dataclass(frozen=True)
class OverSeeds:
    """A quantity over seeds. average: which mean; mean: it, or why there is none; n: the seeds behind it, of all there are.

    terms: what was added up, one number a seed: decimal logarithms where the mean is geometric, none where 0 has none.
    """

    average: str
    mean: Reading
    n: int
    of: int
    terms: tuple[float, ...] = ()

    @property
    def std(self) -> Reading:
        """ddof 1; of a geometric mean the factor that one standard deviation of the logarithms is."""
        return self._figure("std")

    @property
    def low(self) -> Reading:
        """The lower end of the 95 % t interval of the mean, of a geometric one through the logarithms."""
        return self._figure("low")

    @property
    def high(self) -> Reading:
        """The upper end of that interval."""
        return self._figure("high")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends; None where there are none."""
        ends = self.low.value, self.high.value
        return None if None in ends else ends

    @cached_property  # most of what this costs: figures of many sites and epochs show the mean alone
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
    """The mean over seeds of (seed, reading). average: ARITHMETIC or GEOMETRIC.

    Runs of one seed count as one. A seed without a value is left out of n; one that is not finite leaves no mean.
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
    """seed → its value, where it has one; several runs of one seed are their mean, by `average`."""
    several: dict[int, list[float]] = {}
    for seed, reading in readings:
        if reading.value is not None:
            several.setdefault(seed, []).append(reading.value)
    return {seed: _mean(values, average) for seed, values in several.items()}


def _mean(values: Sequence[float], average: str) -> float:
    """Clipped into the values: equal ones have their own mean, not one beside it."""
    low, high = min(values), max(values)
    if low == high:
        return low
    logarithms = average == GEOMETRIC
    mean = math.fsum(map(math.log10, values) if logarithms else values) / len(values)
    return min(max(10.0**mean if logarithms else mean, low), high)
