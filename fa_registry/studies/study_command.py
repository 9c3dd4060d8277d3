"""The command `study`: read a study, and train each specification that has no finished run yet."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fa_registry import jsonio, process_ownership
from fa_registry.errors import Interrupted, InvalidFields, Problem, UnknownName, pluralise
from fa_registry.interrupts import deferred_interrupts
from fa_registry.jsonio import parse_fields
from fa_registry.metrics import DEFAULT, Headline
from fa_registry.protocol.rules import Edition
from fa_registry.records import RunSpec
from fa_registry.reporting.results import TableResult
from fa_registry.reporting.text.filters import markdown_text
from fa_registry.studies.coordination import asked_keep, asked_resources, parse_times, stopped_by_tag
from fa_registry.studies.editions import edition_in_file, headline_problem, load_or_name
from fa_registry.studies.executors.base import JobResources
from fa_registry.studies.method_conformance import log_code_changes
from fa_registry.studies.options import ExecutorOptions, RunSelector, StoreLocation, TrainingOptions
from fa_registry.studies.rule_monitor import UNWATCHED, MonitoredRules, checked_watch
from fa_registry.studies.study import Study
from fa_registry.studies.training_plan import TrainingJob, plan_training, training_job
from fa_registry.tasks import task_of
from fa_registry.tracking import schema
from fa_registry.tracking.cleanup import close_abandoned
from fa_registry.tracking.lease import LeaseHolder, heartbeat_tag
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.stores import (
    in_browser,
    is_missing,
    mlflow_page,
    mlflow_run_in_progress,
    open_tracker,
    page_lines,
)
from fa_registry.training.device_names import Processes
from fa_registry.training.kept_states import AUTO
from fa_registry.training.spec_plugins import find_plugins
from fa_registry.training.specs import run_name, setting_label

if TYPE_CHECKING:
    from fa_registry.studies.execution import Outcomes

LOG = logging.getLogger(__name__)


@dataclass(repr=False)
class StudyResult(TableResult):
    """Result of training a study.

    Attributes:
        present: ids of the runs that were already in the store.
        trained: ids of the runs that this call trained.
        failed: name of each failed run → its error.
        stopped: names of the runs that a person stopped.
        stopped_early: ids of the runs that a rule of --stop-on ended, in this call or earlier.
        elsewhere: ids of the runs that other workers trained during this call.
        left: names of the runs that other workers are still training.
        other_code: run name → changes in the code since the existing run was trained.
        page: address of the MLflow page that compares the runs; empty if there is no page.
        store: address of the store.
    """

    study: str
    present: list[str] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    stopped_early: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    other_code: dict[str, tuple[str, ...]] = field(default_factory=dict)
    page: str = ""
    store: str = ""

    @property
    def ended(self) -> int:
        """Number of runs that ended as requested."""
        return len(self.present) + len(self.trained) + len(self.stopped_early) + len(self.elsewhere)

    @property
    def exit_code(self) -> int:
        return 130 if self.stopped else 1 if self.failed else 0

    @property
    def by_outcome(self) -> dict[str, Collection[str]]:
        """Mapping from the description of an outcome to the ids or names of the runs."""
        return {
            "already complete": self.present,
            "trained": self.trained,
            "trained by other processes": self.elsewhere,
            "still trained by other processes": self.left,
            "stopped early": self.stopped_early,
            "failed": self.failed,
            "stopped": self.stopped,
        }

    def add(self, outcomes: Outcomes) -> None:
        """Add how the jobs of this call ended."""
        for run in outcomes.trained:
            (self.stopped_early if run.status == schema.STOPPED_EARLY else self.trained).append(run.run_id)
        self.elsewhere += [run.run_id for run in outcomes.elsewhere]
        self.failed |= {name: event.value for name, event in outcomes.failed.items()}
        self.stopped += outcomes.stopped
        self.left += outcomes.left

    def lines(self) -> Iterator[str]:
        counts = ", ".join(f"{len(runs)} {outcome}" for outcome, runs in self.by_outcome.items() if runs)
        yield f"study {self.study}: {counts}"
        yield from page_lines(self.page, self.store)

    def rows(self) -> list[dict[str, str]]:
        last_lines = {name: error.strip().rpartition("\n")[2] for name, error in self.failed.items()}
        return [
            {"run": run, "outcome": outcome, "error": last_lines.get(run, "")}
            for outcome, runs in self.by_outcome.items()
            for run in runs
        ]


def run_study(
    selector: RunSelector,
    location: StoreLocation,
    training: TrainingOptions,
    execution: ExecutorOptions,
    joins: bool = False,
) -> StudyResult:
    """Train the specifications of a study that have no finished run and that no other worker is training.

    If `joins` is True, this process is one of many workers. A worker begins with a random specification, logs no run for the
    study itself, and does not wait for the runs of other workers. It waits for an unreachable server, because a queue may start it
    while the server restarts.

    Raises:
        InvalidFields: lists all invalid arguments.
        Interrupted: a person stopped the study.
    """
    study, resources, watch = checked_study(selector, training, execution)
    training = replace(training, keep=asked_keep(training.keep, [], study.keep_states))
    is_new = is_missing(location.store)
    if is_new:
        check_settings(study, selector.study)  # first, because a study that cannot be trained must not create a store
    tracker = open_tracker(location.store, location.experiment, waits=joins)
    launcher_run = "" if joins else mlflow_run_in_progress()
    plan = plan_training(study.specs, tracker, watch, training.force, training.keep_trained)
    log_code_changes(plan.other_code, training.keep_trained)
    result, todo = StudyResult(study.name, other_code=dict(plan.other_code)), plan.to_train
    for run in plan.finished.values():
        is_early = run.tags[schema.TAG_STATUS] == schema.STOPPED_EARLY
        (result.stopped_early if is_early else result.present).append(run.run_id)
    if todo:
        from fa_registry.studies.data_files import make_ready  # late, because these modules import torch
        from fa_registry.training.state_sizes import planned_states

        if not is_new:
            check_settings(study, selector.study)
        make_ready([find_plugins(spec).dataset for spec in todo], location.root)
    if launcher_run:
        tracker.adopt(
            launcher_run, f"study {study.name}", _study_tags(study) | heartbeat_tag(0, int(training.lease)), {}
        )
    if not todo:
        return _nothing_to_train(study, result, tracker, launcher_run)
    if text := stopped_by_tag(tracker, study.name):
        raise Interrupted(text)
    if training.keep.keep_states not in (AUTO, 0):
        text = planned_states(todo, training.keep.keep_states, training.keep.checkpoint_every).text
        LOG.info("study %s: %s", study.name, text)
    tracker.check_place()
    first = random.randrange(len(todo)) if joins else 0  # workers begin with different specifications
    fields = {"study": study.name, "device": selector.device}
    jobs = [
        training_job(spec, plan, tracker.uri, location, training, watch, **fields)
        for spec in (*todo[first:], *todo[:first])
    ]
    _train(jobs, study, result, resources, execution.executor, tracker, launcher_run, joins)
    return _compared(tracker, result)


def _train(
    jobs: list[TrainingJob],
    study: Study,
    result: StudyResult,
    requested: JobResources,
    executor: str,
    tracker: MlflowTracker,
    launcher_run: str,
    joins: bool,
) -> None:
    """Log a run for the study itself, and train the jobs as its child runs."""
    from fa_registry.studies.execution import opened_executor

    def title(count: int, at_once: int) -> str:
        return f"study {study.name}: {count} of {len(study.specs)} runs to train, {at_once} at a time"

    with opened_executor(executor, requested, tracker, jobs, title) as execution:
        lease = jobs[0].lease
        tags = _study_tags(study) | heartbeat_tag(0, lease)
        parent, interrupted = launcher_run, False
        try:
            if not launcher_run and not joins:
                # an interrupt before the id is known would leave a run that nothing can end
                with deferred_interrupts():
                    parent = tracker.create(f"study {study.name}", tags, {})
            training = [replace(job, study_run=parent, experiment_id=tracker.experiment_id) for job in jobs]
            with LeaseHolder(tracker, parent, lease) if parent else nullcontext():
                execution.train(training, waits=not joins)
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            with deferred_interrupts():
                result.add(execution.outcomes)
                _close(tracker, parent, study, result, interrupted)


def _compared(tracker: MlflowTracker, result: StudyResult) -> StudyResult:
    run_ids = {*result.present, *result.trained, *result.stopped_early, *result.elsewhere}
    result.page, result.store = in_browser(tracker.uri, mlflow_page(tracker, result.study, about=run_ids)), tracker.uri
    return result


def _close(tracker: MlflowTracker, parent: str, study: Study, result: StudyResult, interrupted: bool = False) -> None:
    """End the run of the study itself, and end the runs that killed workers left open."""
    interrupted = interrupted or bool(result.stopped)
    broken = bool(result.failed) or result.ended < len(study.specs)
    for spec in study.specs if broken else ():
        as_status = schema.INTERRUPTED if interrupted and run_name(spec) not in result.failed else "failed"
        close_abandoned(tracker, tracker.search({schema.TAG_SPEC: spec.identity}), as_status=as_status)
    if not parent:
        return
    status, state = ("failed", "FAILED") if broken else ("complete", "FINISHED")
    if broken and interrupted:
        status, state = schema.INTERRUPTED, "KILLED"
    tracker.log(parent, tags={schema.TAG_STATUS: status})
    tracker.finish(parent, state)


def _nothing_to_train(study: Study, result: StudyResult, tracker: MlflowTracker, launcher_run: str) -> StudyResult:
    early_count = len(result.stopped_early)
    state = f"complete, or stopped early as requested ({early_count})" if early_count else "complete"
    subject = f"all {len(study.specs)} runs are" if len(study.specs) > 1 else "the only run is"
    LOG.info("study %s: %s %s, nothing to train (--force trains again)", study.name, subject, state)
    if launcher_run:
        tracker.log(launcher_run, tags={schema.TAG_STATUS: "complete"})
    elif study.variant.description and not tracker.search(_marks(study)):
        _close(tracker, tracker.create(f"study {study.name}", _study_tags(study), {}), study, result)
    return _compared(tracker, result)


def _marks(study: Study) -> dict[str, str]:
    """Return the tags of a study's own run: kind, study name and study variant."""
    kind = {schema.TAG_KIND: "study", schema.TAG_STUDY: study.name}
    return kind | ({schema.TAG_VARIANT: jsonio.canonical(study.variant.overrides)} if study.variant.description else {})


def checked_study(
    selector: RunSelector, training: TrainingOptions, execution: ExecutorOptions
) -> tuple[Study, JobResources, MonitoredRules]:
    """Return the study, the resources for training, and the rules to check during training.

    In the returned resources, `at_once` is 0 if the number of simultaneous runs depends on the machine or the cluster. If there
    are no other problems, the caller calls `check_settings`, because a complete study needs neither data nor memory.

    Raises:
        InvalidFields: lists all invalid arguments.
    """
    edition = training.edition
    study, watch, place = None, UNWATCHED, 0
    numbers, problems = parse_fields({"jobs": Processes}, {"jobs": execution.jobs})
    silence_seconds = parse_times(training, problems)
    asked_keep(training.keep, problems)
    resources = asked_resources(execution.executor, execution.cluster, selector.device, problems)
    try:
        study = selector.as_asked
        place = len(problems)
        # an unknown edition must be reported before hours of training
        watch = checked_watch(edition or study.edition, ",".join(training.stop_on), problems)
        study_edition = load_or_name(study.edition, problems) if edition else watch.edition
        problems += without_frozen(study, study_edition) + other_task(study, study_edition) if study_edition else []
    except InvalidFields as error:
        problems += error.problems
        if name := edition or edition_in_file(selector):
            load_or_name(name, problems)
    except UnknownName as error:
        problems.append(f"study {selector.study}: {error}")
    if problems or study is None:
        problems[place:place] = unusable_settings(study) if study else []
        in_file = [("controls", "frozen")] if edition else [("edition",), ("controls", "frozen")]
        located = [
            selector.file.located(each) if isinstance(each, Problem) and each.steps in in_file else each
            for each in problems
        ]
        raise InvalidFields(f"study {selector.study}", sorted(located, key=lambda each: getattr(each, "line", 0)))
    return study, replace(resources, at_once=numbers["jobs"], silence=silence_seconds), watch


def check_settings(study: Study, subject: str) -> None:
    """Raise InvalidFields, which names the study `subject`, if data are absent or networks are too large."""
    if problems := unusable_settings(study):
        raise InvalidFields(f"study {subject}", problems)


def unusable_settings(study: Study) -> list[str]:
    """Return the problems that are known before loading: absent data, and networks that are too large."""
    from fa_registry.training.run_setup import unusable  # late, because it imports torch and the plug-ins

    return list(dict.fromkeys(text for specs in study.settings.values() for text in unusable(specs[0])))


def _study_tags(study: Study) -> dict[str, str]:
    return {
        **_marks(study),
        schema.TAG_STATUS: "running",
        schema.TAG_PROCESS: process_ownership.process_tag(),
        schema.TAG_NOTE: study_note(study),
    }


# Whether a study trains the controls that its edition needs: a setting without its frozen control is an error.


SKIPPED = "skipped"  # value of `without_reference` for a rule that is skipped if there is no control


def without_frozen(study: Study, edition: Edition) -> list[Problem]:
    """Return a problem for each setting without the frozen control that a rule of the edition needs.

    Settings whose task has no main metric are not checked.
    """
    rules = [
        rule.code for rule in edition.rules if rule.reference and rule.gating and rule.without_reference != SKIPPED
    ]
    if not rules:
        return []
    problems = []
    for specs in study.settings.values():
        frozen = {spec.seed for spec in specs if spec.control == "frozen"}
        missing = sorted({spec.seed for spec in specs} - frozen)
        if missing and _headline(specs[0]):
            text = (
                f"setting {setting_label(specs[0])}: expected a frozen control for {_seeds(missing)}, found none; "
                f"{', '.join(rules)} of edition {edition.name} cannot be judged without this control"
            )
            problems.append(Problem(("controls", "frozen"), text))
    return problems


def other_task(study: Study, edition: Edition) -> list[Problem]:
    """Return a problem if the edition judges another main metric than that of the study's runs."""
    found = dict.fromkeys(filter(None, (_headline(specs[0]) for specs in study.settings.values())))
    return [Problem(("edition",), problem)] if (problem := headline_problem(edition, tuple(found))) else []


def _headline(spec: RunSpec) -> Headline | None:
    """Return the main metric of the data set's task, or None if no edition can judge this metric."""
    plugins = find_plugins(spec)
    if plugins.task:
        return plugins.task.main_metric
    if plugins.card.sha256 or plugins.card.files:
        return DEFAULT
    import torch

    labels = plugins.dataset.load(torch.device("cpu"), None, spec.seed).train_labels
    return task_of(labels).card.main_metric


def _seeds(seeds: list[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def study_note(study: Study) -> str:
    """Return the note of the study's run in MLflow: its question and its runs, in Markdown.

    An audit later writes its findings above this note.
    """
    labels = dict.fromkeys(spec.label for spec in study.specs)
    seeds = sorted({spec.seed for spec in study.specs})
    sizes = [
        pluralise(len(study.specs), "run"),
        pluralise(len(study.settings), "setting"),
        pluralise(len(seeds), "seed"),
    ]
    paragraphs = [
        f"**{markdown_text(study.title)}**",
        f"{', '.join(sizes)} ({', '.join(map(str, seeds))}); edition {markdown_text(study.edition)}",
        f"Methods and controls: {', '.join(markdown_text(label) for label in labels)}",
    ]
    if study.cost and not study.variant.description:  # the cost in study.toml is that of the unchanged study
        paragraphs.append(f"Cost: {markdown_text(study.cost)}")
    return "\n\n".join(paragraphs)
