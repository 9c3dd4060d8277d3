"""What tracking one run costs, in an MLflow store made for the occasion (sqlite on local disk) and thrown away."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.schema import metrics
from fa_registry.tracking.writer import FLUSH_SECONDS, RunWriter
from fa_registry.training.loop import EpochRow, TrainingOutcome
from fa_registry.training.measuring import with_conventions
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import Trainer

RUNS = 3  # the medians are reported: the first pays for an empty database


@dataclass(frozen=True)
class TrackingCost:
    """points: metric values an epoch. Seconds: of one epoch's points; of opening and closing a run with its files."""

    points: int
    seconds_per_epoch: float
    seconds_per_run: float


def measure_tracking(task: RunSetup, row: EpochRow, epochs: int, epoch_seconds: float) -> TrackingCost:
    """Write `row` as every epoch of a run, flushed as often as one with epochs of `epoch_seconds` would be."""
    trainer = Trainer(task)
    with tempfile.TemporaryDirectory() as folder:
        tracker = MlflowTracker(f"sqlite:///{Path(folder) / 'mlflow.db'}")
        flush_every = max(1, round(FLUSH_SECONDS / epoch_seconds))
        costs = [_one_run(tracker, trainer, row, epochs, flush_every) for _ in range(RUNS)]
    return TrackingCost(
        points_of(row), median(cost.seconds_per_epoch for cost in costs), median(cost.seconds_per_run for cost in costs)
    )


def _one_run(tracker: MlflowTracker, trainer: Trainer, row: EpochRow, epochs: int, flush_every: int) -> TrackingCost:
    marks = [time.perf_counter()]
    writer = RunWriter(tracker, trainer.setup)
    writer.start(trainer.setup.network)
    marks.append(time.perf_counter())
    for epoch in range(1, epochs + 1):
        writer.on_epoch(
            EpochRow(epoch, row.measurements), trainer
        )  # flushes by itself before FLUSH_POINTS are exceeded
        if epoch % flush_every == 0:
            writer.flush()
    writer.flush()
    marks.append(time.perf_counter())
    writer.complete(TrainingOutcome("complete", epochs, with_conventions(row.measurements, trainer.setup)))
    marks.append(time.perf_counter())
    opening, series, closing = (after - before for before, after in zip(marks, marks[1:], strict=False))
    return TrackingCost(points_of(row), series / epochs, opening + closing)


def points_of(row: EpochRow) -> int:
    """Metric values that one epoch puts into the store."""
    return sum(reading.value is not None for _, reading in metrics(row.measurements))
