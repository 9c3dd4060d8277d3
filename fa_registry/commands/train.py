"""The train verb: one configuration, here, with its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fa_registry.commands.code import code_changes, tell
from fa_registry.commands.conformance import stated_conformance
from fa_registry.commands.data import make_ready
from fa_registry.commands.editions import study_edition
from fa_registry.commands.monitor import Watch, checked_watch
from fa_registry.commands.progress import Progress, training_words
from fa_registry.commands.stores import launched_run, open_tracker
from fa_registry.commands.training import TrainingJob, TrainingResult, finished_run, run_training
from fa_registry.errors import Interrupted, InvalidFields, RegistryError
from fa_registry.records import RunSpec
from fa_registry.studies.executors.local import JobEvent, run_jobs, stop_on_signal
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.training.naming import run_name
from fa_registry.training.specs import parse_spec


@dataclass(frozen=True)
class Trained:
    """A run that is in the store. result: None where it was there before. ended_by: why it was stopped early, if it was.

    other_code: what changed since the run that was there before was trained, a line a member; it was kept, or trained again.
    """

    run_id: str
    status: str
    ended_by: str = ""
    result: TrainingResult | None = None
    other_code: tuple[str, ...] = ()


def run_train(
    fields: Mapping[str, Any],
    store: str = "",
    experiment: str = "",
    force: bool = False,
    study: str = "",
    threads: int = 1,
    checkpoint_every: int = 0,
    data_root: str = "",
    edition: str = "",
    stop_on: str = "",
    keep_trained: bool = False,
) -> Trained:
    """Train one spec, unless the store already holds a finished run of it, trained by today's code or kept all the same.

    edition: the rules it is watched by. stop_on: which of them end it, `D1,D2`.
    Raises InvalidFields before anything is written, RegistryError with the traceback when training breaks.
    """
    spec, watch = _checked(fields, edition or study_edition(study), stop_on)
    tracker = open_tracker(store, experiment)
    present = None if force else finished_run(tracker, spec, watch)
    changed = code_changes(tracker, present, spec) if present else ()
    tell({run_name(spec): changed} if changed else {}, keep_trained)
    if present and (keep_trained or not changed):
        return _as_it_is(present, changed)
    make_ready([spec.dataset], data_root)
    job = TrainingJob(
        spec,
        tracker.uri,
        experiment_id=tracker.experiment_id,
        study=study,
        adopt=launched_run(),
        threads=threads,
        checkpoint_every=checkpoint_every,
        data_root=data_root,
        watch=watch,
        conformance=stated_conformance(spec, tracker.uri),
    )
    end = _run_here(job, run_name(spec))
    if end.kind == "stopped":
        raise Interrupted(end.value or "stopped before it began")
    if end.kind == "failed":
        raise RegistryError(end.value)
    return Trained(end.value.run_id, end.value.status, end.value.ended_by, end.value, changed)


def _as_it_is(run: StoredRun, changed: tuple[str, ...]) -> Trained:
    status, ended_by = run.tags[schema.TAG_STATUS], run.tags.get(schema.TAG_STOPPED_ON, "")
    return Trained(run.run_id, status, ended_by, other_code=changed)


def _checked(fields: Mapping[str, Any], edition: str, stop_on: str) -> tuple[RunSpec, Watch]:
    """What to train and what to look out for; everything that is wrong in either is named at once."""
    problems: list[str] = []
    spec = None
    try:
        spec = parse_spec(fields)
    except InvalidFields as error:
        problems += error.problems
    watch = checked_watch(edition, stop_on, problems)
    if spec and watch.wish and not watch.of(spec.control).wish:
        problems.append(f"stop_on: the {spec.control} control is never judged, so no rule ends it; found {stop_on}")
    if problems or spec is None:
        raise InvalidFields("run specification", problems)
    return spec, watch


def _run_here(job: TrainingJob, name: str) -> JobEvent:
    """Run the job in this process under a progress bar; returns how it ended."""
    ends: list[JobEvent] = []
    title = f"training {job.spec.epochs} epochs on {job.spec.device_class}"
    with Progress(title, [name], training_words) as progress, stop_on_signal() as stop:

        def hear(event: JobEvent) -> None:
            progress.show(event)
            if event.kind != "progress":
                ends.append(event)

        run_jobs([job], run_training, 1, stop, hear)
    return ends[0]
