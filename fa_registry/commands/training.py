"""Training one spec into the store: the job that `train` runs here and `study` runs many of."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fa_registry.errors import Interrupted
from fa_registry.records import RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.store import sqlite_path
from fa_registry.tracking.writer import RunWriter
from fa_registry.training.loop import EpochRow, Outcome, Trainer, pinned_threads, train
from fa_registry.training.resume import ResumeFile
from fa_registry.training.task import prepare


@dataclass(frozen=True)
class TrainingJob:
    """One run to train. store: tracking URI. adopt: id of a run that `mlflow run` already started for it."""

    spec: RunSpec
    store: str
    experiment: str = schema.EXPERIMENT
    experiment_id: str = ""
    study: str = ""
    parent: str = ""
    adopt: str = ""
    threads: int = 1
    checkpoint_every: int = 0
    data_root: str = ""


@dataclass(frozen=True)
class TrainingResult:
    run_id: str
    status: str
    epochs: int
    resumed_from: int
    headline: dict[str, float]


def run_training(job: TrainingJob, stop: Callable[[], bool], report: Callable[[Any], None]) -> TrainingResult:
    """Train `job` into the store. `report` hears (epoch, epochs, accuracy) after every epoch.

    Stopped between epochs, it leaves a resume file and raises Interrupted; the same spec then goes on from there.
    """
    tracker = MlflowTracker(job.store, job.experiment, job.experiment_id)
    close_zombies(tracker, {schema.TAG_SPEC: job.spec.identity})
    resume = ResumeFile(resume_folder(job.store), job.spec.identity)
    with pinned_threads(job.threads):
        root = Path(job.data_root) if job.data_root else None
        task = prepare(job.spec, torch.device(job.spec.device_class), root)
        trainer = Trainer(task)
        rows = resume.read_into(trainer)
        writer = RunWriter(tracker, task, job.study, job.parent, job.adopt, job.checkpoint_every)
        try:
            writer.start(prepare(job.spec, task.device, root).network if rows else task.network)
            writer.restore(rows)
            outcome = train(trainer, _Listener(writer, resume, report), stop, rows[-1] if rows else None)
            writer.complete(outcome)
        except Interrupted as error:
            resume.write(trainer, writer.rows)  # between epochs: weights, generators and rows belong together
            writer.interrupt(str(error))
            raise
        except KeyboardInterrupt:
            writer.interrupt("interrupted inside an epoch")  # half an epoch is no state to go on from
            raise
        except BaseException as error:
            writer.fail(error)
            raise
    resume.remove()
    return TrainingResult(
        writer.run_id, outcome.status, outcome.epochs, len(rows) - 1 if rows else 0, headline(outcome)
    )


class _Listener:
    """Hears every epoch: writes it down, saves a resume file when one is due, reports progress."""

    def __init__(self, writer: RunWriter, resume: ResumeFile, report: Callable[[Any], None]):
        self._writer, self._resume, self._report = writer, resume, report

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None:
        self._writer.on_epoch(row, trainer)
        if self._resume.due():
            self._resume.write(trainer, self._writer.rows)
        self._report((row.epoch, trainer.task.spec.epochs, row.measurements.scalars["accuracy"].value))


def headline(outcome: Outcome) -> dict[str, float]:
    """The figures people look at first; those without a value are left out."""
    scalars = outcome.final.scalars
    names = ("accuracy", "growth_max", "h_L", "g_L", "gamma_deep_mean")
    return {name: scalars[name].value for name in names if scalars[name].value is not None}


def finished_run(tracker: Tracker, spec: RunSpec) -> StoredRun | None:
    """The newest complete (or diverged: it would diverge again) run of this spec."""
    for run in tracker.search({schema.TAG_SPEC: spec.identity}):
        if run.tags.get(schema.TAG_STATUS) in schema.FINISHED_STATUSES:
            return run
    return None


def close_zombies(tracker: Tracker, tags: Mapping[str, str]) -> None:
    """End runs with these tags that say running although the process that wrote them is gone from this machine."""
    for run in tracker.search({**tags, schema.TAG_STATUS: "running"}):
        host, _, process = run.tags.get(schema.TAG_PROCESS, "").partition(":")
        if host == platform.node() and process.isdigit() and not _is_alive(int(process)):
            tracker.log(run.run_id, tags={schema.TAG_STATUS: "failed"})
            tracker.finish(run.run_id, "KILLED")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def resume_folder(store: str) -> Path:
    """Beside a sqlite store, else in the current folder."""
    database = sqlite_path(store)
    return (database.parent if database else Path.cwd()) / ".fa_registry" / "resume"
