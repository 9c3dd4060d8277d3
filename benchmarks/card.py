"""What a card reaches at its best, and how near a dfa step on resmlp comes to it.

The limit is the step's counted FLOP at the rate of a large square product, and AdamW's counted bytes at the rate of a large
copy (benchmarks.limit counts both). A small network's products are too small for that rate: what they reach alone is the
nearer limit, of benchmarks.products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.clock import Work, in_rounds
from benchmarks.limit import ADAMW_TRANSFERS, FLOAT_BYTES, Shape, products
from benchmarks.products import steps_of
from benchmarks.timing import Spread, ratios
from fa_registry.training import devices
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import Trainer

SIDE, REPEATS = 8192, 10  # a block of a quarter of a GB fits into no cache
FP32, TF32, COPY, STEP = "fp32", "tf32", "copy", "step"


@dataclass(frozen=True)
class Card:
    """side: of the square blocks. fp32, tf32: FLOP/s of their product; bandwidth: bytes/s of a copy, read and written.

    flop, moved: FLOP and bytes of a step; floor: seconds they take at these rates; share: of it that a step reaches.
    """

    side: int
    fp32: float
    tf32: float
    bandwidth: float
    flop: int
    moved: int
    floor: float
    share: Spread

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Card:
        """From what --record kept."""
        return cls(**{**kept, "share": Spread(**kept["share"])})


def measure_card(trainer: Trainer, steps: int, rounds: int, side: int = SIDE) -> Card:
    """trainer: of dfa on resmlp, in fp32. steps: a round."""
    device, shape = trainer.setup.device, shape_of(trainer.setup)
    taken = in_rounds({**_at_best(side, device), STEP: steps_of(trainer, steps)}, rounds, device)
    flop = sum(2 * rows * inner * columns * times for rows, inner, columns, times in products(shape))
    moved = ADAMW_TRANSFERS * FLOAT_BYTES * shape.parameters
    work = {FP32: REPEATS * 2 * side**3, TF32: REPEATS * 2 * side**3, COPY: REPEATS * 2 * FLOAT_BYTES * side**2}
    rates = {name: [done / one for one in taken[name]] for name, done in work.items()}
    floors = [flop / rate + moved / bandwidth for rate, bandwidth in zip(rates[FP32], rates[COPY], strict=True)]
    share = ratios(floors, [one / steps for one in taken[STEP]])
    return Card(side, *(median(rates[name]) for name in (FP32, TF32, COPY)), flop, moved, median(floors), share)


def shape_of(task: RunSetup) -> Shape:
    """Of resmlp with dfa's feedback."""
    width, classes = task.feedback.matrix(1).shape
    inputs, batch = math.prod(task.card.image_shape), task.spec.recipe.batch_size
    return Shape(batch, inputs, width, task.blocks, classes, sum(one.numel() for one in task.network.parameters()))


def _at_best(side: int, device: torch.device) -> dict[str, Work]:
    left, right, result = (torch.randn(side, side, device=device) for _ in range(3))

    def multiply(how: str) -> None:
        with devices.products(how):
            for _ in range(REPEATS):
                torch.mm(left, right, out=result)

    def copy() -> None:
        for _ in range(REPEATS):
            result.copy_(left)

    return {FP32: lambda: multiply(FP32), TF32: lambda: multiply(TF32), COPY: copy}


def card_lines(found: Card) -> list[str]:
    """The table people read."""
    share = found.share
    return [
        f"the device at its best, blocks of {found.side} × {found.side} float32",
        f"  {'product, fp32':<30}{found.fp32 / 1e12:8.2f} TFLOP/s",
        f"  {'product, TF32':<30}{found.tf32 / 1e12:8.2f} TFLOP/s",
        f"  {'copy, read and written':<30}{found.bandwidth / 1e12:8.2f} TB/s",
        f"  limit of a resmlp dfa step: {1e6 * found.floor:.1f} µs = {found.flop / 1e9:.2f} GFLOP in fp32"
        f" + {found.moved / 1e6:.0f} MB; reached {share.median:.0%} ({share.low:.0%} to {share.high:.0%})",
    ]
