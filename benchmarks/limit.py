"""What the machine allows: the time a training step cannot go below, from measured rates and counted work.

A step's floor is its matrix products at a measured rate, plus what a fused AdamW moves (reads parameter, gradient, two
moments; writes all but the gradient) at the rate the machine copies a block of that size. There are two such floors: at the
rate of these very shapes, and at that of one large square product, which says nothing of the shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import Spread, ratios

ADAMW_HELD = 4  # floats a parameter: itself, its gradient, two moments
ADAMW_TRANSFERS = 7  # of them: 4 read, 3 written
FLOAT_BYTES = 4
SQUARE = 1024  # rows, inner and columns of the large product; larger ones reach the same rate within a few per cent


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
    square_rate, square_floor, square_share: the same at the rate of one large square product.
    """

    flop: int
    gemm_rate: float
    optimizer_bytes: int
    bandwidth: float
    floor: float
    share: Spread
    square_rate: float
    square_floor: float
    square_share: Spread

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Limit:
        """From what was recorded."""
        return cls(**{name: Spread(**value) if name.endswith("share") else value for name, value in kept.items()})

    def by_rate(self) -> Iterator[tuple[str, float, float, Spread]]:
        """(what was multiplied, flop/s, floor, share) of either floor."""
        yield "these very shapes", self.gemm_rate, self.floor, self.share
        yield f"one product {SQUARE} × {SQUARE} × {SQUARE}", self.square_rate, self.square_floor, self.square_share


def products(shape: Shape) -> list[tuple[int, int, int, int]]:
    """(rows, inner, columns, times) of a dfa step's matrix products.

    A block has six: two forward, two for the weights' gradients, two for its layers' inputs (the LayerNorm learns).
    The embedding has two, because the gradient of the images is not needed; each credit is one.
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
    """What is timed beside a step: all its products ("gemm"), one large square product ("square"), and one copy of as many
    bytes as AdamW holds ("copy")."""
    pairs = [
        (torch.randn(rows, inner), torch.randn(columns, inner), times)
        for rows, inner, columns, times in products(shape)
    ]
    held = torch.randn(ADAMW_HELD * shape.parameters)
    target = torch.empty_like(held)
    square = [(torch.randn(SQUARE, SQUARE), torch.randn(SQUARE, SQUARE), 1)]
    return {"gemm": _all_products(pairs), "square": _all_products(square), "copy": lambda: target.copy_(held)}


def limit_of(shape: Shape, seconds: Mapping[str, Sequence[float]], step: str) -> Limit:
    """The limit from the rounds in which `floor_work` and the candidate `step` were timed together."""
    flop = sum(2 * rows * inner * columns * times for rows, inner, columns, times in products(shape))
    copied = 2 * ADAMW_HELD * FLOAT_BYTES * shape.parameters  # read and written
    moved = ADAMW_TRANSFERS * FLOAT_BYTES * shape.parameters
    moving = [copying * moved / copied for copying in seconds["copy"]]
    floors = [gemm + move for gemm, move in zip(seconds["gemm"], moving, strict=True)]
    part = flop / (2 * SQUARE**3)  # of the square product's operations
    squares = [part * square + move for square, move in zip(seconds["square"], moving, strict=True)]
    return Limit(
        flop,
        gemm_rate=flop / median(seconds["gemm"]),
        optimizer_bytes=moved,
        bandwidth=copied / median(seconds["copy"]),
        floor=median(floors),
        share=ratios(floors, seconds[step]),
        square_rate=2 * SQUARE**3 / median(seconds["square"]),
        square_floor=median(squares),
        square_share=ratios(squares, seconds[step]),
    )


def _all_products(pairs: list[tuple[Tensor, Tensor, int]]) -> Callable[[], None]:
    def multiply() -> None:
        for left, right, times in pairs:
            for _ in range(times):
                nn.functional.linear(left, right)

    return multiply
