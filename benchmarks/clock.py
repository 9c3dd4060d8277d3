"""Timing by the clock, on a CPU or a CUDA device: what a card does is over when it says so."""

from __future__ import annotations

import time
from collections.abc import Callable

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


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
