"""The one training loop, for every method and control."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from fa_registry.architectures.base import noisy
from fa_registry.errors import Interrupted
from fa_registry.records import Measurements, Reading, RunSpec
from fa_registry.seeding import generator
from fa_registry.terminal_loss import NO_CLASSES, is_regression
from fa_registry.training.asking import update
from fa_registry.training.controls import train_mode, trainable_parameters
from fa_registry.training.measuring import check_first_credits, measure, with_final
from fa_registry.training.step import StepSums, exact_step, local_step
from fa_registry.training.task import Task

OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}  # sgd: without momentum


@dataclass(frozen=True)
class EpochRow:
    """One epoch's figures; epoch 0 is the initialisation, before any step."""

    epoch: int
    measurements: Measurements


@dataclass(frozen=True)
class Outcome:
    """How training ended: status complete, diverged or stopped_early, the last epoch, and the final measurements.

    ended_by: what a run that was stopped early was stopped for.
    """

    status: str
    epochs: int
    final: Measurements
    ended_by: str = ""


class Observer(Protocol):
    """Who is told of every epoch while the loop runs: the tracking writer, a progress bar, a test."""

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None: ...


class Trainer:
    """The state that changes while a task trains: weights, optimizer, the generators, the epoch.

    Everything a killed run needs to go on is here; training.resume writes and reads it.
    """

    def __init__(self, task: Task):
        self.task = task
        recipe = task.spec.recipe
        groups = [
            trainable_parameters(task.network, task.spec.control),
            [parameter for parameter in task.feedback.parameters() if parameter.requires_grad],
        ]
        self.parameters = [parameter for group in groups for parameter in group]
        self.optimizer = OPTIMIZERS[recipe.optimizer](
            [{"params": group} for group in groups],  # either may be empty
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        self.generators = {
            "data_order": generator(task.spec.seed, "data_order"),
            "augmentation": generator(task.spec.seed, "augmentation", task.device),
            "noise": generator(task.spec.seed, "noise", task.device),
            "method": generator(task.spec.seed, "method", task.device),
        }
        self.epoch = 0
        self.initial = {name: weight.detach().clone() for name, weight in task.network.named_parameters()}

    def run_epoch(self) -> dict[str, Reading]:
        """Train one epoch; returns loss_train, accuracy_train and penalty as means over the epoch's samples."""
        task, splits, recipe = self.task, self.task.splits, self.task.spec.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(task.spec, self.epoch)
        order = torch.randperm(len(splits.train_labels), generator=self.generators["data_order"]).to(task.device)
        totals = torch.zeros(3, dtype=torch.float64, device=task.device)
        train_mode(task.network)
        with noisy(task.network, self.generators["noise"]):
            for batch in order.split(recipe.batch_size):
                images = splits.augment(splits.train_images[batch], self.generators["augmentation"])
                sums = self.step(images, splits.train_labels[batch])
                totals += torch.stack([sums.loss, sums.correct.to(sums.loss.dtype), sums.penalty])
        self.epoch += 1
        loss, accuracy, penalty = map(
            Reading.of, (totals / len(order)).tolist()
        )  # the epoch's one host synchronisation
        if is_regression(splits.train_labels):
            accuracy = Reading(None, NO_CLASSES)
        return {"loss_train": loss, "accuracy_train": accuracy, "penalty": penalty}

    def step(self, images: Tensor, labels: Tensor) -> StepSums:
        """One optimiser step on one batch."""
        task, spec = self.task, self.task.spec
        self.optimizer.zero_grad(set_to_none=True)
        if task.method.end_to_end:
            sums = exact_step(task.network, images, labels, spec.penalty)
        else:
            sums = local_step(
                task.network,
                task.method,
                task.feedback,
                images,
                labels,
                spec.penalty,
                spec.recipe.credit_norm,
                self.generators["method"],
                self.epoch / spec.epochs,
            )
        self.optimizer.step()
        if sums.seen is not None:
            update(task.method, task.feedback, sums.seen)
        return sums


def learning_rate(spec: RunSpec, epoch: int) -> float:
    """Of the epoch about to run (0-based): constant, or lr · ½(1 + cos(π epoch/epochs))."""
    recipe = spec.recipe
    if recipe.schedule == "constant":
        return recipe.learning_rate
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * epoch / spec.epochs))


def train(
    trainer: Trainer,
    observer: Observer,
    stop: Callable[[], bool] = lambda: False,
    resumed: EpochRow | None = None,
    end: Callable[[], str] = lambda: "",
) -> Outcome:
    """Run the remaining epochs, measuring after each. Raises Interrupted between epochs once `stop()` is true.

    resumed: the last row that was measured before the trainer was stopped; the observer already knows it.
    end: asked when the observer has heard of an epoch; what it returns, if anything, is why the run ends there.
    A run whose loss, states or gradients stop being finite ends there and is marked diverged: more steps would only move
    nan about.
    """
    task = trainer.task
    if not resumed:
        check_first_credits(task)
    row = resumed or EpochRow(trainer.epoch, measure(task))
    if not resumed:
        observer.on_epoch(row, trainer)
    ended_by = end()
    while trainer.epoch < task.spec.epochs and not has_diverged(row.measurements) and not ended_by:
        if stop():
            raise Interrupted(
                f"stopped after epoch {trainer.epoch} of {task.spec.epochs}; the same command goes on from there"
            )
        losses = trainer.run_epoch()
        measured = measure(task)
        row = EpochRow(trainer.epoch, replace(measured, scalars=dict(sorted({**measured.scalars, **losses}.items()))))
        observer.on_epoch(row, trainer)
        ended_by = end()
    status = _status(row, task.spec)
    return Outcome(
        status,
        row.epoch,
        with_final(row.measurements, task, initial=trainer.initial),
        ended_by if status == "stopped_early" else "",
    )


def _status(row: EpochRow, spec: RunSpec) -> str:
    """Of a run that ended after `row`. One that was to end at its last epoch, or as it diverged, lacks nothing."""
    if has_diverged(row.measurements):
        return "diverged"
    return "complete" if row.epoch == spec.epochs else "stopped_early"


def has_diverged(measurements: Measurements) -> bool:
    """Whether a loss, a state or its gradient came out as inf or nan."""
    watched = [measurements.scalars[name] for name in ("loss_train", "penalty") if name in measurements.scalars]
    return any(
        reading.not_finite
        for reading in (*watched, *measurements.sites.get("h_norm", ()), *measurements.sites.get("g_norm", ()))
    )


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """Run with exactly `count` CPU threads: sums are ordered by it, so figures are bit-equal only at equal counts."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
