"""Timing by the clock, on a CPU or a CUDA device: what a card does is over when it says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

from benchmarks.timing import Spread

Work = Callable[[], object]


def seconds(work: Work, device: torch.device) -> float:
    """Of one call, until the device has done all of it."""
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def ratio(above: Work, below: Work, rounds: int, device: torch.device) -> Spread:
    """Seconds of `above` / seconds of `below`, round by round, the order changing; a first round is not counted."""
    above(), below()
    found = []
    for turn in range(rounds):
        pair = (above, below) if turn % 2 else (below, above)
        taken = {work: seconds(work, device) for work in pair}
        found.append(taken[above] / taken[below])
    return Spread.of(found)


def in_rounds(works: Mapping[str, Work], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds of each, round by round; a first round, in which graphs are captured, is not counted."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(seconds(work, device))
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
