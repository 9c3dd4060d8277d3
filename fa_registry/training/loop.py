"""The training loop, which is the same for all methods and controls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from fa_registry.errors import Interrupted
from fa_registry.records import Measurements, RunSpec, objection_in
from fa_registry.records.runs import BEST_VALIDATION
from fa_registry.training.measuring import check_first_credits, measure, with_final
from fa_registry.training.trainer import Trainer

T = TypeVar("T")


@dataclass(frozen=True)
class EpochRow:
    """The metrics after one epoch. Epoch 0 is the state before the first step."""

    epoch: int
    measurements: Measurements


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of a training.

    Attributes:
        status: complete, diverged or stopped_early.
        epochs: number of the last epoch.
        selected: number of the epoch to whose state `final` belongs, if the recipe selects one; otherwise None.
        ended_by: the reason why the run was stopped early, or an empty string.
        stepping: description of how steps were run, see Trainer.stepping.
    """

    status: str
    epochs: int
    final: Measurements
    ended_by: str = ""
    stepping: str = ""
    selected: int | None = None


class Observer(Protocol):
    """Interface of an object that receives every epoch's metrics during training."""

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None: ...


def train(
    trainer: Trainer,
    observer: Observer,
    stop: Callable[[], bool] = lambda: False,
    rows: Sequence[EpochRow] = (),
    end: Callable[[], str] = lambda: "",
) -> TrainingOutcome:
    """Run `train_epochs` with the same arguments to its end."""
    return run_to_completion(train_epochs(trainer, observer, stop, rows, end))


def train_epochs(
    trainer: Trainer,
    observer: Observer,
    stop: Callable[[], bool] = lambda: False,
    rows: Sequence[EpochRow] = (),
    end: Callable[[], str] = lambda: "",
) -> Generator[None, None, TrainingOutcome]:
    """Train the remaining epochs and measure after each epoch. Yield while a GPU is busy.

    A caller with several trainings can start an epoch of another training while a GPU computes. A run ends with the status
    diverged if its loss, states or gradients are not finite, because further steps would only produce nan.

    Args:
        trainer: the state to train.
        observer: receives the metrics after each epoch.
        stop: function that is called between epochs and returns whether to interrupt the training.
        rows: the rows that were measured before an interruption; empty for a new training. The observer has already received
            them.
        end: function that is called after the observer has received an epoch. A non-empty result ends the run and is stored as
            `ended_by`.

    Raises:
        Interrupted: if `stop()` returns true between epochs.
    """
    setup, selects = trainer.setup, trainer.setup.spec.recipe.select == BEST_VALIDATION
    if not rows:
        check_first_credits(setup)
    row = rows[-1] if rows else EpochRow(trainer.epoch, measure(setup))
    selected = next((one for one in rows if trainer.selected and one.epoch == trainer.selected.epoch), None)
    if not rows:
        observer.on_epoch(row, trainer)
    ended_by = end()
    while trainer.epoch < setup.spec.epochs and not has_diverged(row.measurements) and not ended_by:
        if stop():
            raise Interrupted(
                f"stopped after epoch {trainer.epoch} of {setup.spec.epochs}; to resume, run the same command again"
            )
        trainer.begin_epoch()
        yield
        losses = trainer.end_epoch()
        is_due = setup.spec.is_due(trainer.epoch)
        measured = measure(setup, objection=None if is_due else objection_in(row.measurements) or "", is_due=is_due)
        row = EpochRow(trainer.epoch, replace(measured, scalars=dict(sorted({**measured.scalars, **losses}.items()))))
        observer.on_epoch(row, trainer)
        selected = row if trainer.selected and trainer.selected.epoch == row.epoch else selected
        ended_by = end()
    status, stepping = _status(row, setup.spec), trainer.stepping
    trainer.release_graphs()
    result = row
    if selected and status != "diverged":  # a run that diverged ends with the state that shows it
        trainer.use_selected()
        result = selected
    final = with_final(result.measurements, setup, initial=trainer.initial)
    ended_by = ended_by if status == "stopped_early" else ""
    return TrainingOutcome(status, row.epoch, final, ended_by, stepping, result.epoch if selects else None)


def run_to_completion(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


def _status(row: EpochRow, spec: RunSpec) -> str:
    if has_diverged(row.measurements):
        return "diverged"
    return "complete" if row.epoch == spec.epochs else "stopped_early"


def has_diverged(measurements: Measurements) -> bool:
    """Return whether a loss, or the norm of a state or gradient, is inf or nan."""
    watched = [measurements.scalars[name] for name in ("loss_train", "penalty") if name in measurements.scalars]
    return any(
        reading.not_finite
        for reading in (*watched, *measurements.sites.get("h_norm", ()), *measurements.sites.get("g_norm", ()))
    )
