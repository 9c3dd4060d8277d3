"""The command `train`: a study with one specification and without a run for the study itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fa_registry.errors import Interrupted, InvalidFields, RegistryError, pluralise
from fa_registry.records import RunSpec
from fa_registry.reporting.results import Result
from fa_registry.studies.coordination import (
    asked_keep,
    asked_resources,
    parse_times,
    stopped_by_tag,
)
from fa_registry.studies.data_files import make_ready
from fa_registry.studies.editions import study_edition
from fa_registry.studies.execution import Outcomes, opened_executor
from fa_registry.studies.executors.base import ClusterOptions, JobResources
from fa_registry.studies.method_conformance import log_code_changes
from fa_registry.studies.options import SpecOptions, StoreLocation, TrainingOptions
from fa_registry.studies.rule_monitor import MonitoredRules, checked_watch
from fa_registry.studies.training_job import TrainingResult
from fa_registry.studies.training_plan import TrainingJob, plan_training, training_job
from fa_registry.text_safety import name_problem
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.cleanup import close_abandoned
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.stores import (
    in_browser,
    mlflow_page,
    mlflow_run_in_progress,
    open_tracker,
    page_lines,
    served,
)
from fa_registry.training.kept_states import AUTO
from fa_registry.training.run_setup import unusable
from fa_registry.training.spec_plugins import find_plugins
from fa_registry.training.specs import parse_spec, run_name
from fa_registry.training.state_sizes import planned_states

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class TrainResult(Result):
    """Result of `run_train`.

    Attributes:
        ended_by: rule that ended the run early; empty if no rule ended the run.
        result: result of training, or None if the store already had the run.
        other_code: changes in the code since an existing run was trained, one line per plug-in.
        page: address of the MLflow page that compares the runs of the study; empty if there is no page.
        run_page: address of the run's own MLflow page.
    """

    run_id: str
    status: str
    ended_by: str = ""
    result: TrainingResult | None = None
    other_code: tuple[str, ...] = ()
    page: str = ""
    run_page: str = ""
    store: str = ""

    def lines(self) -> Iterator[str]:
        status = f"{self.status.replace('_', ' ')} ({self.ended_by})" if self.ended_by else self.status
        yield f"run {self.run_id}: " + (status if self.result else f"already {status} (--force trains it again)")
        if self.result:
            yield "  " + " · ".join(f"{name} {value:.4g}" for name, value in self.result.headline.items())
        yield f"run page: {served(self.store, self.run_page)}"
        yield from page_lines(self.page, self.store)


def run_train(
    options: SpecOptions,
    location: StoreLocation,
    training: TrainingOptions,
    executor: str,
) -> TrainResult:
    """Train one specification, unless the store has a finished run of this specification.

    If the finished run was trained with other code, the specification is trained again, unless `keep_trained` is set. If
    `executor` is empty, `default_executor` chooses the executor.

    Raises:
        InvalidFields: lists all invalid arguments. Nothing was written.
        RegistryError: training failed. The message contains the traceback.
    """
    study = options.study
    spec, watch, resources = _checked(options, training, executor)
    tracker = open_tracker(location.store, location.experiment)
    plan = plan_training([spec], tracker, watch, training.force, training.keep_trained)
    log_code_changes(plan.other_code, training.keep_trained)
    changed = plan.other_code.get(run_name(spec), ())
    if not plan.to_train:
        return _result(tracker, plan.finished[spec.identity], changed)
    if text := study and stopped_by_tag(tracker, study):
        raise Interrupted(text)
    tracker.check_place()
    make_ready([find_plugins(spec).dataset], location.root)
    training = replace(training, keep=asked_keep(training.keep, []))
    if training.keep.keep_states not in (AUTO, 0):
        text = planned_states([spec], training.keep.keep_states, training.keep.checkpoint_every).text
        LOG.info("%s: %s", run_name(spec), text)
    job = training_job(
        spec,
        plan,
        tracker.uri,
        location,
        training,
        watch,
        experiment_id=tracker.experiment_id,
        study=study,
        adopt=mlflow_run_in_progress(),
        threads=options.threads,
        device=options.device,
    )
    outcomes = _trained(job, executor, resources, tracker)
    for run in outcomes.elsewhere:
        return _result(tracker, run, changed)
    (result,) = outcomes.trained
    return replace(_result(tracker, tracker.get(result.run_id), changed), result=result)


def _trained(job: TrainingJob, executor: str, resources: JobResources, tracker: MlflowTracker) -> Outcomes:
    """Train the job, and raise its error if it was stopped or failed."""

    def title(count: int, at_once: int) -> str:
        return f"training {pluralise(job.spec.epochs, 'epoch')} on {job.spec.device_class}"

    with opened_executor(executor, resources, tracker, [job], title, raises=True) as execution:
        execution.train([job])
    for reason in execution.outcomes.stopped.values():
        raise Interrupted(reason or "stopped before the run began")
    for end in execution.outcomes.failed.values():
        close_abandoned(tracker, tracker.search({schema.TAG_SPEC: job.spec.identity}))  # runs of a killed process
        failure = RegistryError(end.value)
        failure.exit_code = end.refused or failure.exit_code
        raise failure
    return execution.outcomes


def _result(tracker: MlflowTracker, run: StoredRun, changed: tuple[str, ...]) -> TrainResult:
    page, run_page = (
        in_browser(tracker.uri, address)
        for address in (
            mlflow_page(tracker, experiment=run.experiment, about=[run.run_id]),
            tracker.run_page(run.run_id),
        )
    )
    ended_by = run.tags.get(schema.TAG_STOPPED_ON, "")
    status = run.tags[schema.TAG_STATUS]
    return TrainResult(
        run.run_id, status, ended_by, other_code=changed, page=page, run_page=run_page, store=tracker.uri
    )


def _checked(
    options: SpecOptions, training: TrainingOptions, executor: str
) -> tuple[RunSpec, MonitoredRules, JobResources]:
    """Return the specification, the rules to check and the resources; raise one error for all problems."""
    study, stop_on = options.study, ",".join(training.stop_on)
    problems = [f"study: {name_problem(study)}"] if study and name_problem(study) else []
    resources = asked_resources(executor, ClusterOptions(), options.device, problems)
    silence_seconds = parse_times(training, problems)
    asked_keep(training.keep, problems)
    spec = None
    try:
        spec = parse_spec(options.fields)
    except InvalidFields as error:
        problems += error.problems
    problems += unusable(spec) if spec else []
    watch = checked_watch(training.edition or study_edition(study), stop_on, problems)
    if spec and watch.wish and not watch.of(spec.control).wish:
        problems.append(
            f"stop_on: expected no rule, because the {spec.control} control is never judged; found {stop_on}"
        )
    if problems or spec is None:
        raise InvalidFields("run specification", problems)
    return spec, watch, replace(resources, device=spec.device_class, threads=options.threads, silence=silence_seconds)
