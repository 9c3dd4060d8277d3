"""Independent random generators, each derived from the seed of the run and a name.

Two methods with the same seed have the same initial weights ("init"), data order and augmentation. Therefore the runs of
two methods can be compared in pairs.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)

STREAMS = ("init", "feedback", "data_order", "augmentation", "noise", "method", "evaluation", "targets", "validation")


def derive(seed: int, stream: str) -> int:
    """Return a 63-bit seed for a named stream, independent of the seeds of other streams and runs."""
    digest = hashlib.sha256(f"fa_registry/{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, stream: str, device: str | torch.device = "cpu") -> torch.Generator:
    """Return a new random generator for a named stream.

    The weights and the feedback are drawn with a generator on the CPU, so their values are equal on all devices.

    Args:
        stream: one of STREAMS.

    Raises:
        ValueError: the stream is not in STREAMS.
    """
    if stream not in STREAMS:
        raise ValueError(f"unknown stream {stream!r}; known: {', '.join(STREAMS)}")
    return torch.Generator(device).manual_seed(derive(seed, stream))


def undrawn(layer: Callable[..., Layer], *arguments: Any, **options: Any) -> Layer:
    """Return layer(*arguments, **options) without changing the global random state.

    The caller must overwrite the initial weights of the new layer, because these weights do not depend on the seed of the run.
    """
    # torch's skip_init is five times as slow, because it uses the meta device; its first call imports sympy (0.35 s)
    with torch.random.fork_rng(devices=[]):
        return layer(*arguments, **options)


@contextmanager
def generators_unchanged() -> Iterator[None]:
    """Restore the global random generators of torch, NumPy and Python on exit."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=gpus):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
