"""The study verb: expand, skip what is complete, train the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fa_registry.commands.progress import Progress
from fa_registry.commands.stores import launched_run, open_tracker
from fa_registry.commands.training import TrainingJob, close_zombies, finished_run, run_training
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.rules import load_edition
from fa_registry.records import SCHEMA, RunSpec
from fa_registry.studies.executors.local import JobEvent, run_jobs, stop_on_signal
from fa_registry.studies.study import Study, load_study
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.writer import process_tag
from fa_registry.training.naming import run_name
from fa_registry.training.specs import whole_number


@dataclass
class StudyResult:
    """What happened to every spec of a study: run ids already there, trained now, and errors by run name."""

    study: str
    present: list[str] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return 130 if self.stopped else 1 if self.failed else 0


def run_study(
    name: str,
    overrides: Mapping[str, Any],
    store: str = "",
    experiment: str = "",
    jobs: str | int = 0,
    force: bool = False,
    checkpoint_every: int = 0,
    data_root: str = "",
) -> StudyResult:
    """Train every run of the study that the store does not hold yet. jobs 0: one process a core (one in all on a GPU)."""
    study, processes = _checked(name, overrides, jobs)
    tracker, adopted = open_tracker(store, experiment), launched_run()
    close_zombies(tracker, {schema.TAG_KIND: "study"})
    found = [(spec, None if force else finished_run(tracker, spec)) for spec in study.specs]
    todo = [spec for spec, run in found if run is None]
    result = StudyResult(study.name, present=[run.run_id for _, run in found if run])
    if adopted:
        tracker.adopt(adopted, f"study {study.name}", _study_tags(study), {})
    if not todo:
        message = (
            f"study {study.name}: all {len(study.specs)} runs are complete, nothing to train (--force trains again)"
        )
        print(message, file=sys.stderr)
        if adopted:
            tracker.log(adopted, tags={schema.TAG_STATUS: "complete"})
        return result
    parent = adopted or tracker.create(f"study {study.name}", _study_tags(study), {})
    try:
        processes = processes or _default_processes(todo)
        _train_all(todo, study, tracker, parent, result, processes, checkpoint_every, data_root)
    finally:
        broken = bool(result.failed or result.stopped) or len(result.trained) < len(todo)
        for spec in todo if result.failed else ():  # a worker that was killed could not end its run
            close_zombies(tracker, {schema.TAG_SPEC: spec.identity})
        tracker.log(parent, tags={schema.TAG_STATUS: "failed" if broken else "complete"})
        tracker.finish(parent, "FAILED" if broken else "FINISHED")
    return result


def _checked(name: str, overrides: Mapping[str, Any], jobs: str | int) -> tuple[Study, int]:
    """The study and the number of processes; everything that is wrong in either is named at once."""
    problems: list[str] = []
    processes, study = 0, None
    try:
        processes = whole_number(jobs, least=0)
    except ValueError as error:
        problems.append(f"jobs: {error}")
    try:
        study = load_study(name, overrides)
        load_edition(study.edition)  # an edition that does not exist must show before hours of training, not after
    except InvalidFields as error:
        problems += error.problems
    except UnknownName as error:
        problems.append(f"study {name}: {error}")
    if problems or study is None:
        raise InvalidFields(f"study {name}", problems)
    return study, processes


def _train_all(
    todo: list[RunSpec],
    study: Study,
    tracker: MlflowTracker,
    parent: str,
    result: StudyResult,
    processes: int,
    checkpoint_every: int,
    data_root: str,
) -> None:
    jobs = [
        TrainingJob(
            spec,
            tracker.uri,
            experiment_id=tracker.experiment_id,
            study=study.name,
            parent=parent,
            checkpoint_every=checkpoint_every,
            data_root=data_root,
        )
        for spec in todo
    ]
    names = [run_name(spec) for spec in todo]
    title = f"study {study.name}: {len(todo)} of {len(study.specs)} runs to train, {processes} at a time"
    with Progress(title, names) as progress, stop_on_signal() as stop:

        def hear(event: JobEvent) -> None:
            progress.show(event)
            if event.kind == "done":
                result.trained.append(event.value.run_id)
            elif event.kind == "failed":
                result.failed[names[event.index]] = event.value
            elif event.kind == "stopped":
                result.stopped.append(names[event.index])

        run_jobs(jobs, run_training, processes, stop, hear)


def _study_tags(study: Study) -> dict[str, str]:
    return {
        schema.TAG_KIND: "study",
        schema.TAG_SCHEMA: str(SCHEMA),
        schema.TAG_STUDY: study.name,
        schema.TAG_STATUS: "running",
        schema.TAG_PROCESS: process_tag(),
        schema.TAG_NOTE: study.title,
    }


def _default_processes(todo: list[RunSpec]) -> int:
    return 1 if any(spec.device_class == "cuda" for spec in todo) else os.cpu_count() or 1
