"""Timing two things fairly on a machine that is shared: interleaved rounds in one process, and ratios round by round.

Seconds are CPU seconds of this process: at one thread they are what the work takes when no other process uses the core.
What a neighbour still takes away (cache, memory, clock) hits both sides of a round about equally. So a ratio of two
medians is the wrong figure here: the median of the rounds' ratios is the right one, with the least and the largest.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Median, least and largest over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def interleaved(candidates: Mapping[str, Callable[[], object]], rounds: int, calls: int = 1) -> dict[str, list[float]]:
    """CPU seconds a call, one figure a round, for every candidate; each runs once untimed before the first round.

    The order turns by one from round to round, so that no candidate always runs after the same other one.
    """
    names = list(candidates)
    for name in names:
        candidates[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            seconds[name].append(seconds_per_call(candidates[name], calls))
    return seconds


def seconds_per_call(work: Callable[[], object], calls: int) -> float:
    """CPU seconds of one call, averaged over `calls` in a row."""
    start = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - start) / calls


def by_the_clock(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of wall clock, one figure a round, for work that is done in several processes; each runs once untimed first.

    The order is reversed from round to round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name in sorted(candidates, reverse=bool(turn % 2)):
            start = time.perf_counter()
            candidates[name]()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(numerator: Sequence[float], denominator: Sequence[float]) -> Spread:
    """Spread of the ratios, round by round."""
    return Spread.of([above / below for above, below in zip(numerator, denominator, strict=True)])


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep this process, and the workers it starts, on so many cores, where the system can (Linux)."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
