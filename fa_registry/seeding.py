"""Independent random generators by name, all derived from one integer seed.

Two methods with the same seed share initial weights ("init"), data order and augmentation: their runs are paired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)

STREAMS = ("init", "feedback", "data_order", "augmentation", "noise", "method", "evaluation", "targets")


def derive(seed: int, stream: str) -> int:
    """Return a 63-bit seed for a named stream; seeds of different streams or runs are unrelated."""
    digest = hashlib.sha256(f"fa_registry/{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, stream: str, device: str | torch.device = "cpu") -> torch.Generator:
    """Return a new generator of `stream`; weights and feedback use the CPU to be equal on all devices."""
    if stream not in STREAMS:
        raise ValueError(f"unknown stream {stream!r}; known: {', '.join(STREAMS)}")
    return torch.Generator(device).manual_seed(derive(seed, stream))


def undrawn(layer: Callable[..., Layer], *arguments: Any, **options: Any) -> Layer:
    """Return layer(*arguments, **options) with undrawn weights; the random state is unchanged."""
    # torch's skip_init uses the meta device: five times as slow, and its first call imports sympy, 0.35 s
    with torch.random.fork_rng(devices=[]):
        return layer(*arguments, **options)
