"""python -m benchmarks.data_path [--json]: training on CIFAR's shape as published beside ours, data and step together.

Published: a DataLoader with two workers in which torchvision crops, mirrors and normalises PIL images one by one, and the
published loop. Ours: splits as tensors, a whole batch augmented at once, our step; in one process of two threads, and as a study
runs, one process a core. All train dfa on resmlp D = 256, L = 4 on two cores, a tenth of an epoch at a time in turns, by the clock.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.published_epoch import WORKERS, PublishedEpoch
from benchmarks.timing import Spread, by_the_clock, on_cores, ratios
from fa_registry.training.devices import pinned_threads
from fa_registry.training.specs import parse_spec
from fa_registry.training.task import prepare
from fa_registry.training.trainer import Trainer

IMAGES, BATCH, CORES, ROUNDS = 5_000, 128, 2, 5
STEPS = -(-IMAGES // BATCH)
PUBLISHED, OURS, JOBS = f"published, {WORKERS} loader workers", "ours, one process", "ours, a process a core"
SPEC = {"method": "dfa", "architecture": "resmlp", "dataset": f"cifar_shaped:{IMAGES}", "seed": 42, "epochs": 1}
TARGET = 4.0  # published / ours


@dataclass(frozen=True)
class Throughput:
    """milliseconds: a step with its data, median over the rounds. ratio: published / ours, by which of ours."""

    milliseconds: dict[str, float]
    ratio: dict[str, Spread]

    @property
    def target_met(self) -> bool:
        return max(one.median for one in self.ratio.values()) >= TARGET


def measure_throughput(rounds: int = ROUNDS) -> Throughput:
    """A tenth of an epoch of each in turns, the order changing; the first of each is not counted."""
    context = multiprocessing.get_context("spawn")
    with on_cores(CORES), pinned_threads(CORES), ProcessPoolExecutor(CORES, context, _begin) as pool:
        task = prepare(parse_spec(SPEC), torch.device("cpu"))

        def side_by_side() -> None:
            for epoch in [pool.submit(_epoch) for _ in range(CORES)]:
                epoch.result()

        epochs = {
            PUBLISHED: PublishedEpoch(task, IMAGES).train_epoch,
            OURS: Trainer(task).run_epoch,
            JOBS: side_by_side,
        }
        clock = by_the_clock(epochs, rounds)
    trained = {PUBLISHED: STEPS, OURS: STEPS, JOBS: CORES * STEPS}
    seconds = {name: [value / trained[name] for value in values] for name, values in clock.items()}
    return Throughput(
        {name: 1e3 * median(values) for name, values in seconds.items()},
        {name: ratios(seconds[PUBLISHED], seconds[name]) for name in (OURS, JOBS)},
    )


_worker: dict[str, Trainer] = {}


def _begin() -> None:
    torch.set_num_threads(1)
    _worker["trainer"] = Trainer(prepare(parse_spec(SPEC), torch.device("cpu")))


def _epoch() -> None:
    _worker["trainer"].run_epoch()


def throughput_lines(found: Throughput) -> list[str]:
    """The table people read."""
    lines = [f"epoch: CIFAR's shape, batch {BATCH}, D = 256, L = 4, dfa, {CORES} cores, data included, by the clock"]
    lines += [f"  {name:<42}{value:8.2f} ms a step" for name, value in found.milliseconds.items()]
    lines += [
        f"  {f'{PUBLISHED} / {name}':<70}{one.median:8.2f}  ({one.low:.2f} to {one.high:.2f})"
        for name, one in found.ratio.items()
    ]
    return [*lines, f"  target ≥ {TARGET:g}, by the better of ours: {'met' if found.target_met else 'MISSED'}"]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_path", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args(arguments)
    found = measure_throughput()
    report = json.dumps({**dataclasses.asdict(found), "target_met": found.target_met}, indent=2, allow_nan=False)
    print(report if options.json else "\n".join(throughput_lines(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
