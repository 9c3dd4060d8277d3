"""The one training loop, for every method and control."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from fa_registry.deprecated_names import aliases
from fa_registry.errors import Interrupted
from fa_registry.records import Measurements, RunSpec, objection_in
from fa_registry.training.measuring import check_first_credits, measure, with_final
from fa_registry.training.reference import EVERY
from fa_registry.training.trainer import Trainer

T = TypeVar("T")


@dataclass(frozen=True)
class EpochRow:
    """One epoch's metrics; epoch 0 is the initialisation, before any step."""

    epoch: int
    measurements: Measurements


@dataclass(frozen=True)
class TrainingOutcome:
    """How training ended: complete, diverged or stopped_early, with the last epoch and final measurements.

    Attributes:
        ended_by: the reason why a run was stopped early.
        stepping: see Trainer.stepping.
    """

    status: str
    epochs: int
    final: Measurements
    ended_by: str = ""
    stepping: str = ""


class Observer(Protocol):
    """Receives every epoch while the loop runs: the tracking writer, a progress bar, a test."""

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None: ...


def train(
    trainer: Trainer,
    observer: Observer,
    stop: Callable[[], bool] = lambda: False,
    resumed: EpochRow | None = None,
    end: Callable[[], str] = lambda: "",
) -> TrainingOutcome:
    """Run the remaining epochs, measuring after each: `train_epochs` without interruption."""
    return run_to_completion(train_epochs(trainer, observer, stop, resumed, end))


def train_epochs(
    trainer: Trainer,
    observer: Observer,
    stop: Callable[[], bool] = lambda: False,
    resumed: EpochRow | None = None,
    end: Callable[[], str] = lambda: "",
) -> Generator[None, None, TrainingOutcome]:
    """Run the remaining epochs, measuring after each.

    It yields while a GPU works on an epoch, so that a caller with several trainings can begin another one's. A run whose loss,
    states or gradients stop being finite ends there and is marked diverged: more steps would only produce more nan.

    Args:
        stop: returns whether to stop; asked between epochs.
        resumed: the last row that was measured before the trainer was stopped; the observer already has it.
        end: called when the observer has received an epoch; a non-empty result ends the run with it as the reason.

    Raises:
        Interrupted: `stop()` is true between epochs.
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
                f"stopped after epoch {trainer.epoch} of {task.spec.epochs}; the same command resumes there"
            )
        trainer.begin_epoch()
        yield
        losses = trainer.end_epoch()
        is_checked = trainer.epoch % EVERY == 0 or trainer.epoch == task.spec.epochs
        measured = measure(task, objection=None if is_checked else objection_in(row.measurements))
        row = EpochRow(trainer.epoch, replace(measured, scalars=dict(sorted({**measured.scalars, **losses}.items()))))
        observer.on_epoch(row, trainer)
        ended_by = end()
    status = _status(row, task.spec)
    final = with_final(row.measurements, task, initial=trainer.initial)
    return TrainingOutcome(status, row.epoch, final, ended_by if status == "stopped_early" else "", trainer.stepping)


def run_to_completion(steps: Generator[None, None, T]) -> T:
    """Run a generator of steps to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


def _status(row: EpochRow, spec: RunSpec) -> str:
    """Return the status of a run that ended after `row`.

    A run that diverged, or whose epoch is the last one, was not stopped early.
    """
    if has_diverged(row.measurements):
        return "diverged"
    return "complete" if row.epoch == spec.epochs else "stopped_early"


def has_diverged(measurements: Measurements) -> bool:
    """Return whether a loss, a state or its gradient is inf or nan."""
    watched = [measurements.scalars[name] for name in ("loss_train", "penalty") if name in measurements.scalars]
    return any(
        reading.not_finite
        for reading in (*watched, *measurements.sites.get("h_norm", ()), *measurements.sites.get("g_norm", ()))
    )


__getattr__ = aliases(__name__)
