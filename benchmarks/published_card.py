"""The published loop on a card, its data there too, in its favour: so many steps, and a whole epoch with what it looks at."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.clock import Work
from benchmarks.published_epoch import accuracy, layers
from benchmarks.published_loop import PublishedLoop
from fa_registry.training.run_setup import RunSetup


def steps(task: RunSetup, count: int) -> Work:
    """So many, on the first batch, augmented once."""
    loop, size = PublishedLoop(task), task.spec.recipe.batch_size
    images = task.splits.augment(task.splits.train_images[:size], torch.Generator(task.device))

    def run() -> None:
        for _ in range(count):
            loop.step(images, task.splits.train_labels[:size])

    return run


def epoch(task: RunSetup) -> Work:
    """Trains on all samples, then evaluates the test set and looks at every layer, as benchmarks.published_epoch does."""
    loop, splits, size = PublishedLoop(task), task.splits, task.spec.recipe.batch_size
    draw = torch.Generator(task.device)
    test = list(zip(splits.test_images.split(size), splits.test_labels.split(size), strict=True))

    def run() -> tuple[float, list]:
        for rows in _order(splits.train_labels).split(size):
            loop.step(splits.augment(splits.train_images[rows], draw), splits.train_labels[rows])
        loop.network.eval()
        found = accuracy(loop.network, test), layers(loop.network, loop.feedback, *task.eval_batch)
        loop.network.train()
        return found

    return run


def _order(labels: Tensor) -> Tensor:
    return torch.randperm(len(labels)).to(labels.device)
