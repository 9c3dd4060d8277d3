"""The study verb: expand, skip what is complete, train the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fa_registry.commands.progress import Progress
from fa_registry.commands.stores import launched_run, open_tracker
from fa_registry.commands.training import TrainingJob, finished_run, run_training
from fa_registry.records import SCHEMA, RunSpec
from fa_registry.studies.executors.local import JobEvent, run_jobs, stop_on_signal
from fa_registry.studies.study import Study, load_study
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.naming import run_name


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
    processes: int = 0,
    force: bool = False,
    checkpoint_every: int = 0,
    data_root: str = "",
) -> StudyResult:
    """Train every run of the study that the store does not hold yet. processes 0: one a core (one in all on a GPU)."""
    study = load_study(name, overrides)
    tracker, adopted = open_tracker(store, experiment), launched_run()
    result = StudyResult(study.name)
    todo = []
    for spec in study.specs:
        present = None if force else finished_run(tracker, spec)
        if present:
            result.present.append(present.run_id)
        else:
            todo.append(spec)
    if adopted:
        tracker.adopt(adopted, f"study {study.name}", _study_tags(study), {})
    if not todo:
        print(
            f"study {study.name}: all {len(study.specs)} runs are complete, nothing to train (--force trains again)",
            file=sys.stderr,
        )
        return result
    parent = adopted or tracker.create(f"study {study.name}", _study_tags(study), {})
    try:
        _train_all(todo, study, tracker, parent, result, _processes(processes, todo), checkpoint_every, data_root)
    finally:
        broken = bool(result.failed or result.stopped) or len(result.trained) < len(todo)
        tracker.log(parent, tags={schema.TAG_STATUS: "failed" if broken else "complete"})
        tracker.finish(parent, "FAILED" if broken else "FINISHED")
    return result


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
        schema.TAG_NOTE: study.title,
    }


def _processes(asked: int, todo: list[RunSpec]) -> int:
    if asked:
        return asked
    return 1 if any(spec.device_class == "cuda" for spec in todo) else os.cpu_count() or 1
