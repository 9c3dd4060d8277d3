"""Plan of a training: which specifications have a finished run, and which must be trained.

`train`, `study` and the dry run of a study share this plan. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fa_registry.process_ownership import LEASE
from fa_registry.records import RunSpec
from fa_registry.studies.method_conformance import cached_conformance, code_changes
from fa_registry.studies.options import StoreLocation, TrainingOptions
from fa_registry.studies.rule_monitor import UNWATCHED, MonitoredRules
from fa_registry.tracking import schema
from fa_registry.tracking.base import RetentionOptions, StoredRun, Tracker, newest_first
from fa_registry.tracking.reader import runs_by_spec
from fa_registry.tracking.run_state import RunState
from fa_registry.training.specs import run_name


@dataclass(frozen=True)
class TrainingJob:
    """One specification to train, with all options.

    Attributes:
        study_run: id of the MLflow run of the study itself.
        adopt: id of a run that `mlflow run` has created, to be used for this job.
        keep: which weights, training states and metric points are stored.
        watch: rules to check during training, and rules that end the run.
        conformance: result of the conformance suite for the method, to be recorded with the run.
        device: GPU to use if the machine has several, e.g. `cuda:1`.
        lease: a run on another machine counts as abandoned if it has no heartbeat for this number of seconds.
        known: ids of runs of this specification that had ended before this job. The job trains the specification despite these
            runs.
        yields: whether to end this job if another worker trains the specification.
    """

    spec: RunSpec
    store: str
    experiment_id: str = ""
    study: str = ""
    study_run: str = ""
    adopt: str = ""
    threads: int = 1
    keep: RetentionOptions = RetentionOptions()
    data_root: str = ""
    watch: MonitoredRules = UNWATCHED
    conformance: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""
    lease: int = LEASE
    known: frozenset[str] = frozenset()
    yields: bool = True


@dataclass(frozen=True)
class TrainingPlan:
    """Finished and unfinished specifications of one call.

    Attributes:
        finished: identity of a specification that needs no training → its run.
        to_train: all other specifications.
        ended: identity → ids of its runs that had ended when the plan was made.
        other_code: run name → changes in the code since the newest run was trained.
    """

    finished: Mapping[str, StoredRun]
    to_train: Sequence[RunSpec]
    ended: Mapping[str, frozenset[str]]
    other_code: Mapping[str, tuple[str, ...]]


def plan_training(
    specs: Sequence[RunSpec], tracker: Tracker, watch: MonitoredRules, force: bool = False, keep_trained: bool = False
) -> TrainingPlan:
    """Read from the store which specifications must be trained.

    A specification whose finished run was trained with other code is trained again, unless `keep_trained` is set. All
    specifications are trained if `force` is set.
    """
    attempts = {} if force else runs_by_spec(tracker, [spec.identity for spec in specs])
    newest = {spec.identity: newest_finished(attempts.get(spec.identity, ()), spec, watch) for spec in specs}
    changes = {spec.identity: code_changes(tracker, run, spec) for spec in specs if (run := newest[spec.identity])}
    is_done = {identity: keep_trained or not changed for identity, changed in changes.items()}
    return TrainingPlan(
        {identity: run for identity, run in newest.items() if run and is_done[identity]},
        [spec for spec in specs if not is_done.get(spec.identity)],
        {identity: ended_among(runs) for identity, runs in attempts.items()},
        {run_name(spec): changes[spec.identity] for spec in specs if changes.get(spec.identity)},
    )


def training_job(
    spec: RunSpec,
    plan: TrainingPlan,
    store: str,
    location: StoreLocation,
    training: TrainingOptions,
    watch: MonitoredRules,
    **fields: Any,
) -> TrainingJob:
    """Return the job that trains a specification of the plan; `fields` are further fields of the job."""
    return TrainingJob(
        spec,
        store,
        keep=training.keep,
        data_root=location.data_root,
        watch=watch,
        conformance=cached_conformance(spec, store),
        lease=int(training.lease),
        known=plan.ended.get(spec.identity, frozenset()),
        yields=not training.force,
        **fields,
    )


def finished_run(tracker: Tracker, spec: RunSpec, watch: MonitoredRules = UNWATCHED) -> StoredRun | None:
    """Return the `newest_finished` run of the specification, or None if the specification must be trained."""
    return newest_finished(tracker.search({schema.TAG_SPEC: spec.identity}), spec, watch)


def newest_finished(runs: Sequence[StoredRun], spec: RunSpec, watch: MonitoredRules = UNWATCHED) -> StoredRun | None:
    """Return the newest finished run of a specification, whose status is complete or diverged.

    If no run is finished, return the newest run that the same stop rules ended early, because these rules would also end a new
    run. If both are missing, return None.
    """
    runs, wish = newest_first(runs), watch.of(spec.control).wish
    early = (schema.STOPPED_EARLY, wish)
    ended_early = (run for run in runs if wish and (RunState(run).status, run.tags.get(schema.TAG_STOP_ON)) == early)
    return next((run for run in runs if RunState(run).is_finished), None) or next(ended_early, None)


def ended_among(attempts: Iterable[StoredRun]) -> frozenset[str]:
    """Return the ids of the runs that are not running."""
    return frozenset(run.run_id for run in attempts if not RunState(run).is_running)


def finished_but(
    ignored_ids: Iterable[str], watch: MonitoredRules
) -> Callable[[RunSpec, Sequence[StoredRun]], StoredRun | None]:
    """Return a version of `newest_finished` that ignores the runs with the ids `ignored_ids`."""

    def finished(spec: RunSpec, attempts: Sequence[StoredRun]) -> StoredRun | None:
        return newest_finished([run for run in attempts if run.run_id not in ignored_ids], spec, watch)

    return finished
