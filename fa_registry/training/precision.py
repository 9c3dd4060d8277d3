"""How exactly a network multiplies while it trains. Measuring is always in full float32 and float64.

fp32: IEEE products, on CUDA too, where convolutions would round to TF32 unless told otherwise.
tf32: CUDA's tensor cores, products of 10-bit mantissas.
bf16: the insides of embedding, blocks and readout by autocast; the stream, the credits and the weights stay float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

PRECISIONS = ("fp32", "tf32", "bf16")

Run = Callable[..., Tensor]


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Inside, CUDA's float32 products are TF32 for "tf32" and exact otherwise; what was set before comes back."""
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = "tf32" if precision == "tf32" else "ieee"
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


def call(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """A part of the network as it is."""
    return part(*inputs)


def runner(precision: str, device: torch.device) -> Run:
    """What calls a part of the network, run(part, *inputs) → float32, so that whatever lies between parts is float32."""
    if precision != "bf16":
        return call

    def run(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        # no part uses a weight twice, and what a cache keeps of a step in a CUDA graph would be the graph's own memory
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return part(*inputs).float()

    return run


def obstacle(precision: str, device_class: str, replaces_weights: bool) -> str:
    """Why a run cannot train in this precision; empty where it can."""
    if precision == "tf32" and device_class != "cuda":
        return "tf32 is CUDA's: there are no such products on a CPU"
    if precision == "bf16" and replaces_weights:
        return (
            "bf16 is autocast's, which knows nothing of the replaced weights that this method's error goes back through"
        )
    return ""
