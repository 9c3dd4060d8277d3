"""What the machine allows: the time a training step cannot go below, from measured rates and counted work.

A step's floor is its matrix products at the rate this machine multiplies these very shapes, plus what a fused AdamW
moves (reads parameter, gradient, two moments; writes all but the gradient) at the rate it copies a block of that size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from benchmarks.timing import Spread, ratios
from fa_registry.architectures._linear import product

ADAMW_HELD = 4  # floats a parameter: itself, its gradient, two moments
ADAMW_TRANSFERS = 7  # of them: 4 read, 3 written
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Shape:
    """Of the network and its batch."""

    batch: int
    inputs: int
    width: int
    blocks: int
    classes: int
    parameters: int


@dataclass(frozen=True)
class Limit:
    """flop: of one step's products. gemm_rate: flop/s. optimizer_bytes: moved by AdamW. bandwidth: bytes/s.

    floor: seconds, median over the rounds. share: of the limit that a step reaches, floor / time round by round.
    """

    flop: int
    gemm_rate: float
    optimizer_bytes: int
    bandwidth: float
    floor: float
    share: Spread


def products(shape: Shape) -> list[tuple[int, int, int, int]]:
    """(rows, inner, columns, times) of a dfa step's matrix products.

    A block has six: two forward, two for the weights' gradients, two for its layers' inputs (the LayerNorm learns).
    The embedding has two, since nobody asks for the gradient of the images; each credit is one.
    """
    batch, width = shape.batch, shape.width
    return [
        (batch, shape.inputs, width, 1),
        (width, batch, shape.inputs, 1),
        (batch, width, width, 4 * shape.blocks),
        (width, batch, width, 2 * shape.blocks),
        (batch, width, shape.classes, 1),
        (shape.classes, batch, width, 1),
        (batch, shape.classes, width, 1 + shape.blocks),
    ]


def floor_work(shape: Shape) -> dict[str, Callable[[], object]]:
    """What is timed beside a step: all its products ("gemm"), and one copy of as many bytes as AdamW holds ("copy")."""
    pairs = [
        (torch.randn(rows, inner), torch.randn(columns, inner), times)
        for rows, inner, columns, times in products(shape)
    ]
    held = torch.randn(ADAMW_HELD * shape.parameters)
    target = torch.empty_like(held)
    return {"gemm": _all_products(pairs), "copy": lambda: target.copy_(held)}


def limit_of(shape: Shape, seconds: Mapping[str, Sequence[float]], step: str) -> Limit:
    """The limit from the rounds in which `floor_work` and the candidate `step` were timed together."""
    flop = sum(2 * rows * inner * columns * times for rows, inner, columns, times in products(shape))
    copied = 2 * ADAMW_HELD * FLOAT_BYTES * shape.parameters  # read and written
    moved = ADAMW_TRANSFERS * FLOAT_BYTES * shape.parameters
    floors = [gemm + copying * moved / copied for gemm, copying in zip(seconds["gemm"], seconds["copy"], strict=True)]
    rates = flop / median(seconds["gemm"]), copied / median(seconds["copy"])
    return Limit(flop, rates[0], moved, rates[1], floor=median(floors), share=ratios(floors, seconds[step]))


def _all_products(pairs: list[tuple[Tensor, Tensor, int]]) -> Callable[[], None]:
    def multiply() -> None:
        for left, right, times in pairs:
            for _ in range(times):
                product(left, right)

    return multiply
