"""Training one spec into the store: the job that `train` runs here and `study` runs many of."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fa_registry import jsonio
from fa_registry.commands.monitor import UNWATCHED, Monitor, Watch
from fa_registry.errors import Interrupted
from fa_registry.records import RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.store import sqlite_path
from fa_registry.tracking.writer import RunWriter
from fa_registry.training.code import FIRST, code_of
from fa_registry.training.devices import pinned_threads
from fa_registry.training.loop import EpochRow, Outcome, in_one_go, training
from fa_registry.training.resume import ResumeFile
from fa_registry.training.task import prepare
from fa_registry.training.trainer import Trainer


@dataclass(frozen=True)
class TrainingJob:
    """One run to train. store: tracking URI. adopt: id of a run that `mlflow run` already started for it.

    watch: the rules to look out for while it trains, and those that end it. conformance: of its method, to be sealed with it.
    """

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
    watch: Watch = UNWATCHED
    conformance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingResult:
    """fired: rule → the epoch at which it first fired. ended_by: what a run that was stopped early was stopped for."""

    run_id: str
    status: str
    epochs: int
    resumed_from: int
    headline: dict[str, float]
    fired: Mapping[str, int] = field(default_factory=dict)
    ended_by: str = ""


def run_training(job: TrainingJob, stop: Callable[[], bool], report: Callable[[Any], None]) -> TrainingResult:
    """Train `job` into the store: `training_steps` in one go, on the job's number of threads."""
    with pinned_threads(job.threads):
        return in_one_go(training_steps(job, stop, report))


def training_steps(
    job: TrainingJob, stop: Callable[[], bool], report: Callable[[Any], None]
) -> Generator[None, None, TrainingResult]:
    """Train `job` into the store. `report` hears (epoch, epochs, note, rule → epoch of first fire) after every epoch.

    Yields while a GPU works on an epoch. Stopped between epochs, it leaves a resume file and raises Interrupted; the same job
    then goes on from there.
    """
    tracker = MlflowTracker(job.store, job.experiment, job.experiment_id)
    close_zombies(tracker, {schema.TAG_SPEC: job.spec.identity})
    watch = job.watch.of(job.spec.control)
    resume = ResumeFile(resume_folder(job.store), _resume_name(job.spec, watch))
    root = Path(job.data_root) if job.data_root else None
    task = prepare(job.spec, torch.device(job.spec.device_class), root)
    trainer = Trainer(task)
    rows = resume.read_into(trainer)
    writer = RunWriter(tracker, task, job.study, job.parent, job.adopt, job.checkpoint_every, None, job.conformance)
    try:
        writer.start(prepare(job.spec, task.device, root).network if rows else task.network)
        writer.restore(rows)
        monitor = Monitor(watch, writer.tag, rows)
        listener = _Listener(writer, resume, monitor, report)
        outcome = yield from training(trainer, listener, stop, rows[-1] if rows else None, lambda: monitor.ended_by)
        writer.first_steps(trainer.early)
        writer.complete(outcome)
    except Interrupted as error:
        resume.write(trainer, writer.rows)  # between epochs: weights, generators and rows belong together
        writer.interrupt(str(error))
        raise
    except (KeyboardInterrupt, GeneratorExit):
        writer.interrupt("interrupted inside an epoch")  # half an epoch is no state to go on from
        raise
    except BaseException as error:
        writer.fail(error)
        raise
    resume.remove()
    resumed_from = len(rows) - 1 if rows else 0
    figures, fired = headline(outcome), dict(monitor.fired)
    return TrainingResult(writer.run_id, outcome.status, outcome.epochs, resumed_from, figures, fired, outcome.ended_by)


def _resume_name(spec: RunSpec, watch: Watch) -> str:
    """A run that a rule may end has a resume file of its own: the other's state may lie beyond its end.

    So has one of other code than version 1 of ours: half a run of a method before it was edited is no half of one after.
    """
    changed = {name: entry for name, entry in code_of(spec).items() if entry != FIRST and "diagnostics/" not in name}
    parts = [jsonio.digest_of(part)[:16] for part in (watch.wish, changed) if part]
    return "-".join([spec.identity, *parts])


class _Listener:
    """Hears every epoch: writes it down, judges it, saves a resume file when one is due, reports progress."""

    def __init__(self, writer: RunWriter, resume: ResumeFile, monitor: Monitor, report: Callable[[Any], None]):
        self._writer, self._resume, self._monitor, self._report = writer, resume, monitor, report

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None:
        self._writer.on_epoch(row, trainer)
        self._monitor.hear(row)
        if self._resume.due():
            self._resume.write(trainer, self._writer.rows)
        self._report((row.epoch, trainer.task.spec.epochs, _note(row), dict(self._monitor.fired)))


def _note(row: EpochRow) -> str:
    """What a progress bar shows of an epoch: the accuracy, or the loss where there are no classes."""
    for name in ("accuracy", "loss_train"):
        reading = row.measurements.scalars.get(name)
        if reading is not None and reading.value is not None:
            return f"{name.removesuffix('_train')} {reading.value:.3f}"
    return ""


def headline(outcome: Outcome) -> dict[str, float]:
    """The figures people look at first; those without a value are left out."""
    names = ("accuracy", "growth_max", "h_L", "g_L", "gamma_deep_mean", "costate_cosine_mean")
    known = {name: outcome.final.scalars[name].value for name in names if name in outcome.final.scalars}
    return {name: value for name, value in known.items() if value is not None}


def finished_run(tracker: Tracker, spec: RunSpec, watch: Watch = UNWATCHED) -> StoredRun | None:
    """The run of this spec that makes training it needless, if there is one: see `newest_finished`."""
    return newest_finished(tracker.search({schema.TAG_SPEC: spec.identity}), spec, watch)


def newest_finished(runs: Sequence[StoredRun], spec: RunSpec, watch: Watch = UNWATCHED) -> StoredRun | None:
    """Of a spec's runs, newest first: the first complete (or diverged: it would diverge again) one.

    Where there is none, one that was stopped early by the very same wish: it would be stopped there again.
    """
    for run in runs:
        if run.tags.get(schema.TAG_STATUS) in schema.FINISHED_STATUSES:
            return run
    wish = watch.of(spec.control).wish
    for run in runs if wish else ():
        if (run.tags.get(schema.TAG_STATUS), run.tags.get(schema.TAG_STOP_ON)) == (schema.STOPPED_EARLY, wish):
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
    return registry_folder(store) / "resume"


def registry_folder(store: str) -> Path:
    """What may be lost without harm: beside a sqlite store, else in the current folder."""
    database = sqlite_path(store)
    return (database.parent if database else Path.cwd()) / ".fa_registry"
