"""How long one step takes compared with the loop that a careful engineer would write, the published loop, bp, fa, and the limit.

python -m benchmarks.step_time [--json] [--record]: a minute, in CPU seconds of one thread. --record keeps the answers in
docs/measured/step_time.json. The baseline is the fastest variant of benchmarks.fair_loop.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.fair_loop import VARIANTS, FairLoop
from benchmarks.limit import Limit, Shape, floor_work, limit_of
from benchmarks.published_loop import PublishedLoop
from benchmarks.recording import FOLDER, add_options, tell
from benchmarks.tables import verdict
from benchmarks.tasks import CIFAR_CARD, cifar_task, digits_task
from benchmarks.timing import Spread, interleaved, ratios
from fa_registry.training.devices import pinned_threads
from fa_registry.training.measuring import measure
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import Trainer

MEASURED = FOLDER / "step_time.json"
BATCH = 128
ROUNDS, CALLS = 15, 8
FAIR = "fair loop"
BF16 = "dfa, bf16"
COMPARED = (("dfa", FAIR), ("dfa", "published"), ("dfa", "bp"), ("fa", "bp"), (BF16, "dfa"))
LIMIT_TARGET = 0.7  # of its limit that a step is to reach
CIFAR, DIGITS = "CIFAR's shape, 3072 inputs", "digits, 144 inputs"


@dataclass(frozen=True)
class ShapeTimes:
    """milliseconds: median a step. fair: the fastest variant of the fair loop. ratio: "a / b" → spread over the rounds."""

    milliseconds: dict[str, float]
    fair: str
    ratio: dict[str, Spread]

    @classmethod
    def of_rounds(cls, seconds: Mapping[str, Sequence[float]]) -> ShapeTimes:
        """From CPU seconds by candidate and round."""
        fair = min(VARIANTS, key=lambda name: median(seconds[name]))
        seconds = {**seconds, FAIR: seconds[fair]}
        return cls(
            {name: 1e3 * median(values) for name, values in seconds.items() if name != FAIR},
            fair,
            {f"{a} / {b}": ratios(seconds[a], seconds[b]) for a, b in COMPARED if a in seconds},
        )


@dataclass(frozen=True)
class StepTimes:
    """shapes: by data set. limit: of the machine, for a dfa step of CIFAR's shape."""

    shapes: dict[str, ShapeTimes]
    limit: Limit

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> StepTimes:
        """From what --record kept."""
        shapes = {
            name: ShapeTimes(
                one["milliseconds"], one["fair"], {key: Spread(**value) for key, value in one["ratio"].items()}
            )
            for name, one in kept["shapes"].items()
        }
        return cls(shapes, Limit.of(kept["limit"]))


def measure_steps(rounds: int = ROUNDS, calls: int = CALLS) -> StepTimes:
    """Every candidate does the same steps on the same batches, interleaved."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(BATCH, *CIFAR_CARD.image_shape, generator=draw)
    labels = torch.randint(CIFAR_CARD.classes, (BATCH,), generator=draw)
    tasks = {method: cifar_task(method, BATCH, BATCH) for method in ("dfa", "bp", "fa")}
    task = tasks["dfa"]
    shape = Shape(
        BATCH,
        math.prod(CIFAR_CARD.image_shape),
        width=256,
        blocks=task.blocks,
        classes=CIFAR_CARD.classes,
        parameters=sum(parameter.numel() for parameter in task.network.parameters()),
    )
    steps = _candidates({**tasks, BF16: cifar_task("dfa", BATCH, BATCH, "bf16")}, images, labels)
    large = interleaved({**steps, **floor_work(shape)}, rounds, calls)
    tasks = {method: digits_task(method) for method in tasks}
    small = interleaved(_candidates(tasks, *tasks["dfa"].eval_batch), rounds, 4 * calls)
    shapes = {
        CIFAR: ShapeTimes.of_rounds({name: large[name] for name in steps}),
        DIGITS: ShapeTimes.of_rounds(small),
    }
    return StepTimes(shapes, limit_of(shape, large, "dfa"))


def _candidates(tasks: Mapping[str, RunSetup], images: Tensor, labels: Tensor) -> dict[str, Callable[[], object]]:
    """A function for each loop that runs one step. tasks: name of the candidate → what a Trainer trains."""
    task = tasks["dfa"]
    measure(task)  # as train() does first; its float64 pass also teaches malloc to keep big blocks, for every candidate
    loops = {name: FairLoop(task, fused) for name, fused in VARIANTS.items()} | {"published": PublishedLoop(task)}
    ours = {name: our_step(Trainer(one), images, labels) for name, one in tasks.items()}
    return {name: lambda loop=loop: loop.step(images, labels) for name, loop in loops.items()} | ours


def our_step(trainer: Trainer, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """A step with what run_epoch does around it, so that reporting the loss is in both sides of the comparison."""
    totals = torch.zeros(3, dtype=torch.float64)
    trainer.setup.network.train()

    def step() -> None:
        sums = trainer.step(images, labels)
        totals.add_(torch.stack([sums.loss, sums.score.to(sums.loss.dtype), sums.penalty]))

    return step


def step_lines(times: StepTimes) -> list[str]:
    """The table people read."""
    lines = []
    for name, found in times.shapes.items():
        lines.append(f"step: {name}, batch {BATCH}, D = 256, L = 4, one thread; fair loop: {found.fair}")
        lines += [f"  {candidate:<42}{value:8.2f} ms" for candidate, value in found.milliseconds.items()]
        lines += [
            f"  {compared:<42}{one.median:8.3f}  ({one.low:.3f} to {one.high:.3f})"
            for compared, one in found.ratio.items()
        ]
    limit = times.limit
    traffic = f"{limit.optimizer_bytes / 1e6:.0f} MB at {limit.bandwidth / 1e9:.0f} GB/s"
    lines.append(f"  limit: {limit.flop / 1e9:.2f} GFLOP + {traffic}")
    for what, rate, floor, share in limit.by_rate():
        lines.append(
            f"  at the {rate / 1e9:.0f} GFLOP/s of {what}: {1e3 * floor:.2f} ms, of which dfa reaches {share.median:.1%}"
            f" ({share.low:.1%} to {share.high:.1%})  target ≥ {LIMIT_TARGET:.0%}: {verdict(share.median >= LIMIT_TARGET)}"
        )
    return lines


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_time", description=__doc__.splitlines()[0])
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    with pinned_threads(1):
        times = measure_steps()
    tell(asdict(times), step_lines(times), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
