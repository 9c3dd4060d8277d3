"""What `track` adds to a loop of one's own: the share of an epoch of CIFAR's shape, beside the measuring itself.

python -m benchmarks.own_loop [--json] [--record]: half a minute. A network of ours is the model, the first steps of an epoch the
loop (the rest is scaled); opening and closing the run are spread over TIMED epochs. --record keeps the answer in
docs/measured/own_loop.json.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from unittest.mock import patch

import torch

import fa_registry
from benchmarks.overheads import CIFAR_STEPS
from benchmarks.recording import FOLDER, add_options, tell
from benchmarks.tasks import CIFAR_TEST, CIFAR_TRAIN, cifar_task
from fa_registry import diagnostics
from fa_registry.training.probe_context import credits_under
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.track import TrackedRun

MEASURED = FOLDER / "own_loop.json"
TARGET = 0.03  # of issue 19
TIMED = 10  # epochs


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, since writing waits for the disk: of an epoch's training, of measuring it, and of what `track` adds."""

    training: float
    measuring: float
    tracking: float

    @property
    def share(self) -> float:
        return self.tracking / self.training


def measure() -> Cost:
    task = cifar_task("dfa", CIFAR_STEPS * 128, CIFAR_TEST)
    trainer, spent = Trainer(task), {"training": 0.0, "measuring": 0.0}

    def credit(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return credits_under(task, task.feedback, diagnostics.run_forward_backward(network, x, y))

    genuine = TrackedRun._measured

    def clocked(self: TrackedRun, *given, **named):
        began = time.perf_counter()
        try:
            return genuine(self, *given, **named)
        finally:
            spent["measuring"] += time.perf_counter() - began

    began = time.perf_counter()
    with (
        patch.object(TrackedRun, "_measured", clocked),
        fa_registry.track(task.network, eval=task.eval_batch, method="own", seed=1, credit=credit) as run,
    ):
        for _ in range(TIMED):
            before = time.perf_counter()
            trainer.run_epoch()
            spent["training"] += time.perf_counter() - before
            run.epoch()
    whole = time.perf_counter() - began
    tracked = whole - sum(spent.values())
    steps = math.ceil(CIFAR_TRAIN / 128) / CIFAR_STEPS
    return Cost(spent["training"] / TIMED * steps, spent["measuring"] / (TIMED + 2), tracked / TIMED)


def lines(cost: Cost) -> list[str]:
    met = "met" if cost.share <= TARGET else "missed"
    return [
        f"an epoch of CIFAR's shape: {cost.training:.1f} s of training, {cost.measuring:.2f} s of measuring, "
        f"{cost.tracking:.3f} s of `track`: {100 * cost.share:.2f} % (≤ {100 * TARGET:.0f} %: {met}), "
        f"its opening and closing spread over {TIMED} epochs"
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_loop", description=__doc__.splitlines()[0])
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="fa_registry-own-") as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        cost = measure()
    tell(asdict(cost) | {"share": cost.share, "target": TARGET}, lines(cost), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
