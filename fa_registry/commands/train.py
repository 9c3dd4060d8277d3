"""The train verb: one configuration, here, with its progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fa_registry.commands.progress import Progress
from fa_registry.commands.stores import launched_run, open_tracker
from fa_registry.commands.training import TrainingJob, TrainingResult, finished_run, run_training
from fa_registry.errors import Interrupted, RegistryError
from fa_registry.studies.executors.local import JobEvent, run_jobs, stop_on_signal
from fa_registry.training.naming import run_name
from fa_registry.training.specs import parse_spec


def run_train(
    fields: Mapping[str, Any],
    store: str = "",
    experiment: str = "",
    force: bool = False,
    study: str = "",
    threads: int = 1,
    checkpoint_every: int = 0,
    data_root: str = "",
) -> tuple[str, TrainingResult | None]:
    """Train one spec; returns (run id, result), result None when the store already holds a finished run of it.

    Raises InvalidFields before anything is written, RegistryError with the traceback when training breaks.
    """
    spec = parse_spec(fields)
    tracker = open_tracker(store, experiment)
    present = None if force else finished_run(tracker, spec)
    if present:
        return present.run_id, None
    job = TrainingJob(
        spec,
        tracker.uri,
        experiment_id=tracker.experiment_id,
        study=study,
        adopt=launched_run(),
        threads=threads,
        checkpoint_every=checkpoint_every,
        data_root=data_root,
    )
    end = _run_here(job, run_name(spec))
    if end.kind == "stopped":
        raise Interrupted(end.value or "stopped before it began")
    if end.kind == "failed":
        raise RegistryError(end.value)
    return end.value.run_id, end.value


def _run_here(job: TrainingJob, name: str) -> JobEvent:
    """Run the job in this process under a progress bar; returns how it ended."""
    ends: list[JobEvent] = []
    title = f"training {job.spec.epochs} epochs on {job.spec.device_class}"
    with Progress(title, [name]) as progress, stop_on_signal() as stop:

        def hear(event: JobEvent) -> None:
            progress.show(event)
            if event.kind != "progress":
                ends.append(event)

        run_jobs([job], run_training, 1, stop, hear)
    return ends[0]
