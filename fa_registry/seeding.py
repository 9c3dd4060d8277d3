"""One integer seed, fanned out by name into independent generators.

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
    """A 63-bit seed for one named stream; streams of one seed, and one stream of two seeds, are unrelated."""
    digest = hashlib.sha256(f"fa_registry/{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, stream: str, device: str | torch.device = "cpu") -> torch.Generator:
    """A fresh generator of `stream`; weights and feedback are always drawn on the CPU so that devices agree."""
    if stream not in STREAMS:
        raise ValueError(f"unknown stream {stream!r}; known: {', '.join(STREAMS)}")
    return torch.Generator(device).manual_seed(derive(seed, stream))


def undrawn(layer: Callable[..., Layer], *arguments: Any, **options: Any) -> Layer:
    """layer(*arguments, **options), whose weights are still to be drawn: what its constructor draws leaves no trace.

    Not torch's skip_init: its detour over the meta device takes five times as long, and the first one 0.35 s for sympy.
    """
    with torch.random.fork_rng(devices=[]):
        return layer(*arguments, **options)
