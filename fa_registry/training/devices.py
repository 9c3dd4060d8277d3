"""Which device trains (auto prefers CUDA, cuda without one is an error), on how many cores and with how many threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

CHOICES = ("auto", "cuda", "cpu")


def resolve(name: str) -> str:
    """`cuda` or `cpu` for auto, cuda or cpu; ValueError when there is no such device."""
    if name not in CHOICES:
        raise ValueError(f"expected one of {', '.join(CHOICES)}, found {name!r}")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("cuda was asked for, but torch sees no CUDA device; use cpu or auto")
    return name


def gpu_name(device: torch.device) -> str:
    """The card's name, empty on a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def usable_cores() -> int:
    """Those that this process may run on, where the system can say (taskset, a batch system's share); else all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """Run with exactly `count` CPU threads: sums are ordered by it, so figures are bit-equal only at equal counts."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
