"""How long one dfa step takes beside the published loop's, beside bp and fa, and beside what the machine allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.limit import Limit, Shape, floor_work, limit_of
from benchmarks.published_loop import PublishedLoop
from benchmarks.tasks import CIFAR_CARD, cifar_task
from benchmarks.timing import Spread, interleaved, ratios
from fa_registry.training.measuring import measure
from fa_registry.training.trainer import Trainer

BATCH = 128
ROUNDS, CALLS = 15, 8
TARGET = 0.5  # ours / published
LIMIT_TARGET = 0.7  # of its limit that a step is to reach
LAYER = "published on our layer"
FUSED = "published on our layer, fused AdamW"
BF16 = "dfa, bf16"
COMPARED = (("dfa", "published"), ("dfa", LAYER), ("dfa", FUSED), ("dfa", "bp"), ("fa", "bp"), (BF16, "dfa"))


@dataclass(frozen=True)
class StepTimes:
    """milliseconds: median a step. ratio: "a / b" → spread over the rounds. limit: of the machine, for a dfa step."""

    milliseconds: dict[str, float]
    ratio: dict[str, Spread]
    limit: Limit

    @property
    def target_met(self) -> bool:
        return self.ratio["dfa / published"].median <= TARGET


def measure_steps(rounds: int = ROUNDS, calls: int = CALLS) -> StepTimes:
    """Every candidate does the same steps on the same CIFAR-shaped batches, interleaved."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(BATCH, *CIFAR_CARD.image_shape, generator=draw)
    labels = torch.randint(CIFAR_CARD.classes, (BATCH,), generator=draw)
    task = cifar_task("dfa", BATCH, BATCH)
    measure(task)  # as train() does first; its float64 pass also teaches malloc to keep big blocks, for every candidate
    baselines = {
        "published": PublishedLoop(task),
        LAYER: PublishedLoop(task, our_layer=True),
        FUSED: PublishedLoop(task, fused=True, our_layer=True),
    }
    steps = {name: lambda loop=loop: loop.step(images, labels) for name, loop in baselines.items()}
    for method in ("dfa", "bp", "fa"):
        steps[method] = our_step(Trainer(cifar_task(method, BATCH, BATCH)), images, labels)
    steps[BF16] = our_step(Trainer(cifar_task("dfa", BATCH, BATCH, "bf16")), images, labels)
    shape = Shape(
        BATCH,
        math.prod(CIFAR_CARD.image_shape),
        width=256,
        blocks=task.blocks,
        classes=CIFAR_CARD.classes,
        parameters=sum(parameter.numel() for parameter in task.network.parameters()),
    )
    seconds = interleaved({**steps, **floor_work(shape)}, rounds, calls)
    return StepTimes(
        milliseconds={name: 1e3 * median(seconds[name]) for name in steps},
        ratio={f"{above} / {below}": ratios(seconds[above], seconds[below]) for above, below in COMPARED},
        limit=limit_of(shape, seconds, "dfa"),
    )


def our_step(trainer: Trainer, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    """A step with what run_epoch does around it, so that reporting the loss is in both sides of the comparison."""
    totals = torch.zeros(3, dtype=torch.float64)
    trainer.setup.network.train()

    def step() -> None:
        sums = trainer.step(images, labels)
        totals.add_(torch.stack([sums.loss, sums.score.to(sums.loss.dtype), sums.penalty]))

    return step


def step_lines(times: StepTimes) -> list[str]:
    """The table people read."""
    limit = times.limit
    lines = ["step: batch 128, 3072 inputs, D = 256, L = 4, one thread"]
    lines += [f"  {name:<42}{value:8.2f} ms" for name, value in times.milliseconds.items()]
    lines += [f"  {name:<42}{one.median:8.3f}  ({one.low:.3f} to {one.high:.3f})" for name, one in times.ratio.items()]
    lines += [
        f"  target dfa / published ≤ {TARGET}: {'met' if times.target_met else 'MISSED'}",
        f"  limit: {limit.flop / 1e9:.2f} GFLOP + {limit.optimizer_bytes / 1e6:.0f} MB at {limit.bandwidth / 1e9:.0f} GB/s",
    ]
    for what, rate, floor, share in limit.by_rate():
        lines.append(
            f"  at the {rate / 1e9:.0f} GFLOP/s of {what}: {1e3 * floor:.2f} ms, of which dfa reaches {share.median:.1%}"
            f" ({share.low:.1%} to {share.high:.1%})  target ≥ {LIMIT_TARGET:.0%}:"
            f" {'met' if share.median >= LIMIT_TARGET else 'MISSED'}"
        )
    return lines
