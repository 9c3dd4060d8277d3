"""python -m benchmarks.data_path [--json]: training on CIFAR's shape as published beside ours, data and step together.

Published: a DataLoader with two workers in which torchvision crops, mirrors and normalises PIL images one by one, and the
published loop. Ours: splits as tensors, a whole batch augmented at once, our step. Both train dfa on resmlp D = 256, L = 4
on two cores, with two threads, a tenth of an epoch at a time in turns, by the clock, as the workers are processes of their own.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.published_loop import PublishedLoop
from benchmarks.timing import Spread, ratios
from fa_registry.datasets import cifar10
from fa_registry.datasets._torchvision import torchvision_datasets
from fa_registry.training.loop import Trainer, pinned_threads
from fa_registry.training.specs import parse_spec
from fa_registry.training.task import Task, prepare

IMAGES, BATCH, WORKERS, THREADS, ROUNDS = 5_000, 128, 2, 2, 5
SPEC = {"method": "dfa", "architecture": "resmlp", "dataset": f"cifar_shaped:{IMAGES}", "seed": 42, "epochs": 1}
TARGET = 4.0  # published / ours


@dataclass(frozen=True)
class Throughput:
    """published, ours: milliseconds a step with its data, median over the rounds. ratio: published / ours."""

    published: float
    ours: float
    ratio: Spread

    @property
    def target_met(self) -> bool:
        return self.ratio.median >= TARGET


class PilImages(Dataset):
    """Random photographs as torchvision's CIFAR10 hands them out, through the published transform."""

    def __init__(self):
        torchvision_datasets()  # mends torchvision's import beside a CPU torch
        transforms = importlib.import_module("torchvision.transforms")
        size, transform = cifar10.CARD.image_shape[1], cifar10.PLUGIN.transform
        self.to_image = importlib.import_module("PIL.Image").fromarray
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(size, padding=transform.padding),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(transform.mean, transform.std),
            ]
        )
        draw = np.random.default_rng(0)
        self.pixels = draw.integers(256, size=(IMAGES, size, size, 3), dtype=np.uint8)
        self.labels = draw.integers(cifar10.CARD.classes, size=IMAGES)

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.to_image(self.pixels[index])), int(self.labels[index])


def measure_throughput(rounds: int = ROUNDS) -> Throughput:
    """A tenth of an epoch of each in turns, the order changing; the first of each is not counted."""
    with on_cores(THREADS), pinned_threads(THREADS):
        task = prepare(parse_spec(SPEC), torch.device("cpu"))
        epochs = {"published": published_epoch(task), "ours": Trainer(task).run_epoch}
        seconds: dict[str, list[float]] = {name: [] for name in epochs}
        for turn in range(rounds + 1):
            for name in sorted(epochs, reverse=bool(turn % 2)):
                start = time.perf_counter()
                epochs[name]()
                if turn:
                    seconds[name].append(time.perf_counter() - start)
    steps = -(-IMAGES // BATCH)
    published, ours = (1e3 * median(seconds[name]) / steps for name in ("published", "ours"))
    return Throughput(published, ours, ratios(seconds["published"], seconds["ours"]))


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep this process, and the workers it starts, on so many cores, where the system can (Linux)."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def published_epoch(task: Task) -> Callable[[], None]:
    """Its workers stay alive from one epoch to the next, in its favour."""
    loop = PublishedLoop(task)
    loader = DataLoader(PilImages(), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)

    def run() -> None:
        for images, labels in loader:
            loop.step(images, labels)

    return run


def throughput_lines(found: Throughput) -> list[str]:
    """The table people read."""
    return [
        f"epoch: CIFAR's shape, batch {BATCH}, D = 256, L = 4, dfa, {THREADS} cores, data included, by the clock",
        f"  published, {WORKERS} loader workers     {found.published:8.2f} ms a step",
        f"  ours                            {found.ours:8.2f} ms a step",
        f"  published / ours                {found.ratio.median:8.2f}  ({found.ratio.low:.2f} to {found.ratio.high:.2f})  "
        f"target ≥ {TARGET:g}: {'met' if found.target_met else 'MISSED'}",
    ]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_path", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args(arguments)
    found = measure_throughput()
    report = json.dumps({**dataclasses.asdict(found), "target_met": found.target_met}, indent=2, allow_nan=False)
    print(report if options.json else "\n".join(throughput_lines(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
