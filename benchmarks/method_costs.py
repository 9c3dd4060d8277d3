"""python -m benchmarks.method_costs [--json]: what a training step of every method costs beside one of bp.

One thread, resmlp D = 256, L = 4, batch 128, CIFAR-shaped. Every method is interleaved with bp alone: with all 18 in
one round each would step in a cache full of the others' moments, and its ratio would be to a bp of seconds ago.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from statistics import median

import torch

from benchmarks.step_time import BATCH, our_step
from benchmarks.tasks import CIFAR_CARD, cifar_task
from benchmarks.timing import Spread, interleaved, ratios
from fa_registry import methods
from fa_registry.training.devices import pinned_threads
from fa_registry.training.trainer import Trainer

ROUNDS, CALLS = 40, 1
ARCHITECTURE = "resmlp"
AIMS = {"fa": 1.1, "dfa": 1.1, "drtp": 1.1, "usf": 1.3, "frsf": 1.3, "brsf": 1.3, "kolen_pollack": 1.3}


@dataclasses.dataclass(frozen=True)
class MethodCost:
    """milliseconds: median a step. ratio: to bp's step, over the rounds. aim: the most it should be; None without one."""

    method: str
    milliseconds: float
    ratio: Spread
    aim: float | None

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return ""
        return f"aim ≤ {self.aim}: {'met' if self.ratio.median <= self.aim else 'MISSED'}"


def measure_costs(rounds: int = ROUNDS, calls: int = CALLS) -> list[MethodCost]:
    """Of every method of the catalog that trains resmlp, dearest last."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(BATCH, *CIFAR_CARD.image_shape, generator=draw)
    labels = torch.randint(CIFAR_CARD.classes, (BATCH,), generator=draw)
    names = [name for name in methods.CATALOG.names() if methods.CATALOG.get(name).card.supports(ARCHITECTURE)]
    bp = our_step(Trainer(cifar_task("bp", BATCH, BATCH)), images, labels)
    costs = []
    for name in names:
        step = our_step(Trainer(cifar_task(name, BATCH, BATCH)), images, labels)
        seconds = interleaved({"bp": bp, name: step}, rounds, calls)
        costs.append(
            MethodCost(name, 1e3 * median(seconds[name]), ratios(seconds[name], seconds["bp"]), AIMS.get(name))
        )
    return sorted(costs, key=lambda cost: cost.ratio.median)


def cost_lines(costs: list[MethodCost]) -> list[str]:
    """The table people read."""
    lines = ["step of every method beside bp's: batch 128, 3072 inputs, D = 256, L = 4, one thread"]
    for cost in costs:
        spread = f"{cost.ratio.median:8.2f}  ({cost.ratio.low:.2f} to {cost.ratio.high:.2f})"
        lines.append(f"  {cost.method:<24}{cost.milliseconds:8.2f} ms {spread}  {cost.verdict}".rstrip())
    return lines


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.method_costs", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON list instead of the table")
    options = parser.parse_args(arguments)
    with pinned_threads(1):
        costs = measure_costs()
    if options.json:
        print(json.dumps([dataclasses.asdict(cost) for cost in costs], indent=2, allow_nan=False))
    else:
        print("\n".join(cost_lines(costs)))


if __name__ == "__main__":
    main(sys.argv[1:])
