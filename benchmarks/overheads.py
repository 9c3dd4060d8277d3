"""What measuring and tracking add to training, in per cent of it: for the digits study, and in CIFAR's shape."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from statistics import median

from benchmarks.tasks import CIFAR_TEST, CIFAR_TRAIN, EPOCHS, cifar_task, digits_task
from benchmarks.timing import interleaved
from benchmarks.tracking_cost import TrackingCost, measure_tracking
from fa_registry import diagnostics
from fa_registry.records import Measurements
from fa_registry.records.runs import EVERY
from fa_registry.tasks.classification import accuracy
from fa_registry.training.loop import EpochRow
from fa_registry.training.measuring import measure
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import Trainer

ROUNDS = 9
CIFAR_STEPS = 24  # timed of the epoch's 391; the rest is scaled
MEASURING_TARGETS, TRACKING_TARGET = {"digits": 0.12}, 0.03


@dataclass(frozen=True)
class Overhead:
    """CPU seconds an epoch; tracking in wall-clock seconds, since it waits for the disk.

    measuring, float64: of the mean epoch, since the pass in float64 is due after every EVERY-th one.
    steps: of an epoch; timed_steps: how many of them were really run (the rest is scaled). float32, arithmetic,
    float64, accuracy: the parts of `measuring`, each timed by itself, so their sum is not exactly it.
    """

    name: str
    steps: int
    timed_steps: int
    training: float
    measuring: float
    float32: float
    arithmetic: float
    float64: float
    accuracy: float
    tracking: TrackingCost

    @property
    def measuring_share(self) -> float:
        return self.measuring / self.training

    @property
    def diagnostics_share(self) -> float:
        """Of the diagnostics alone: what a training loop that already evaluates every epoch pays on top."""
        return (self.float32 + self.arithmetic + self.float64) / self.training

    @property
    def tracking_share(self) -> float:
        """Of a run of EPOCHS epochs, its opening and closing included."""
        return (self.tracking.seconds_per_epoch + self.tracking.seconds_per_run / EPOCHS) / self.training


def measure_overheads(rounds: int = ROUNDS) -> list[Overhead]:
    """The digits study's shape, whole; CIFAR's with a bounded number of steps and the whole test set."""
    digits = digits_task("dfa")
    digits_steps = math.ceil(len(digits.splits.train_labels) / digits.spec.recipe.batch_size)
    batch = digits.spec.recipe.batch_size
    cifar = cifar_task("dfa", CIFAR_STEPS * batch, CIFAR_TEST)
    return [
        _overhead("digits", digits, digits_steps, digits_steps, rounds),
        _overhead("cifar-shaped", cifar, math.ceil(CIFAR_TRAIN / batch), CIFAR_STEPS, max(rounds // 3, 1)),
    ]


def _overhead(name: str, task: RunSetup, steps: int, timed_steps: int, rounds: int) -> Overhead:
    trainer = Trainer(task)
    losses = trainer.run_epoch()
    measured = measure(task)
    row = EpochRow(1, dataclasses.replace(measured, scalars={**measured.scalars, **losses}))
    timed = interleaved(_parts(trainer), rounds)
    timed["float64"] = [both - single for both, single in zip(timed["both"], timed["single"], strict=True)]
    seconds = {part: median(values) for part, values in timed.items()}
    training = seconds["training"] * steps / timed_steps
    return Overhead(
        name,
        steps,
        timed_steps,
        training,
        seconds["measure"] + (seconds["due"] - seconds["measure"]) / EVERY,
        seconds["single"],
        seconds["arithmetic"],
        seconds["float64"] / EVERY,
        seconds["accuracy"],
        measure_tracking(task, row, EPOCHS, training),
    )


def _parts(trainer: Trainer) -> dict:
    """What is timed: an epoch's steps, measuring, and its parts."""
    task = trainer.setup
    images, labels = task.eval_batch
    seen = _observe(task, double=True)
    return {
        "training": trainer.run_epoch,
        "measure": lambda: measure(task, is_due=False),
        "due": lambda: measure(task),
        "single": lambda: _observe(task, double=False),
        "both": lambda: _observe(task, double=True),
        "arithmetic": lambda: _arithmetic(seen),
        "accuracy": lambda: accuracy(task.network, task.splits.test_images, task.splits.test_labels),
    }


def _observe(task: RunSetup, double: bool) -> diagnostics.Observation:
    """The passes alone. dfa's credits are left out: five small products."""
    return diagnostics.observe(task.network, *task.eval_batch, exact=task.exact_sites, double=double)


def _arithmetic(seen: diagnostics.Observation) -> Measurements:
    """Every diagnostic's own arithmetic, on an observation with nothing cached; gradients stand in for credits."""
    fresh = dataclasses.replace(seen, credits=seen.gradients)
    measured = [diagnostics.CATALOG.get(name).measure(fresh) for name in diagnostics.CATALOG.names()]
    return Measurements(
        {name: line for one in measured for name, line in one.sites.items()},
        {name: line for one in measured for name, line in one.scalars.items()},
    )


def overhead_lines(found: Overhead) -> list[str]:
    """The table people read: seconds an epoch, and per cent of training."""
    scaled = "" if found.timed_steps == found.steps else f" ({found.timed_steps} timed, scaled to {found.steps})"
    cost = found.tracking
    lines = [
        f"overheads of an epoch, {found.name}: {found.steps} steps{scaled}, dfa, one thread",
        f"  {'training':<34}{1e3 * found.training:9.1f} ms",
    ]
    parts = {
        "measuring": found.measuring,
        "· float32 pass": found.float32,
        "· diagnostics' arithmetic": found.arithmetic,
        "· float64 fidelity pass": found.float64,
        "· accuracy, whole test set": found.accuracy,
        f"tracking, {cost.points} points": cost.seconds_per_epoch,
        f"tracking, a run's files / {EPOCHS} epochs": cost.seconds_per_run / EPOCHS,
    }
    lines += [f"  {part:<34}{1e3 * value:9.1f} ms {value / found.training:7.1%}" for part, value in parts.items()]
    for what, share, target in (
        ("measuring", found.measuring_share, MEASURING_TARGETS.get(found.name)),
        ("tracking", found.tracking_share, TRACKING_TARGET),
    ):
        if target:
            lines.append(f"  target {what} ≤ {target:.0%}: {'met' if share <= target else 'MISSED'} ({share:.1%})")
    return lines
