"""Train one specification and log the run; used by the commands `train` and `study`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import Interrupted, InvalidFields, RegistryError, StoreError, pluralise
from fa_registry.metrics import headline_of, table, value_in
from fa_registry.process_ownership import LEASE
from fa_registry.records import RunSpec
from fa_registry.studies import executors
from fa_registry.studies.executors.base import ENDS, ClusterOptions, JobEvent, JobResources
from fa_registry.studies.executors.local import stop_on_signal
from fa_registry.text_safety import name_problem
from fa_registry.tracking import schema
from fa_registry.tracking.base import RetentionOptions, StoredRun, Tracker
from fa_registry.tracking.lease import LeaseLost, acquire, lease_owner, set_lease_state
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.resume_upload import KeptState
from fa_registry.tracking.run_state import HeartbeatMonitor
from fa_registry.tracking.store_errors import refused
from fa_registry.tracking.writer import RunWriter
from fa_registry.training.code_fingerprint import fingerprint, runs_others_code
from fa_registry.training.devices import configuration, device_of, on_device
from fa_registry.training.loop import EpochRow, TrainingOutcome, train_epochs
from fa_registry.training.resume import ResumeFile
from fa_registry.training.run_setup import RunSetup, build_setup, check_room, unusable
from fa_registry.training.spec_plugins import find_plugins
from fa_registry.training.specs import parse_spec, run_name
from fa_registry.training.trainer import Trainer
from fa_registry.training.trainer_state import kept_bytes, kept_epochs
from fa_registry.workflows.cleanup import close_abandoned, resume_folder
from fa_registry.workflows.conformance import cached_conformance, code_changes, log_code_changes
from fa_registry.workflows.coordination import (
    StopTagPoller,
    StudySnapshot,
    asked_resources,
    check_reach,
    ended_among,
    finished_but,
    newest_finished,
    on_gpu,
    parse_times,
    stopped_by_tag,
    wait_for_others,
)
from fa_registry.workflows.data import make_ready
from fa_registry.workflows.editions import study_edition
from fa_registry.workflows.options import SpecOptions, StoreLocation, TrainingOptions
from fa_registry.workflows.progress import Progress, joined
from fa_registry.workflows.results import Result
from fa_registry.workflows.rule_monitor import UNWATCHED, Monitor, MonitoredRules, checked_watch, fired_text
from fa_registry.workflows.stores import (
    in_browser,
    mlflow_page,
    mlflow_run_in_progress,
    open_tracker,
    page_lines,
    registry_folder,
)

LOG = logging.getLogger(__name__)
ELSEWHERE = "elsewhere"  # status of a job whose spec another process trains
FILES = "the disk with this run's files"  # named in errors that do not come from the store


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


def headline(outcome: TrainingOutcome) -> dict[str, float]:
    """Return the most important final metrics, without metrics that have no value."""
    names = table("train_command", [headline_of(outcome.final.scalars)])
    readings = {name: reading for name in names if (reading := value_in(outcome.final, name))}
    return {name: reading.value for name, reading in readings.items() if reading.value is not None}


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training job.

    Attributes:
        run_id: id of the trained run. If the status is ELSEWHERE, id of the other worker's run.
        status: status of the run, or ELSEWHERE if another worker trains or has just trained the specification.
        resumed_from: last epoch before an interruption; 0 if the run was not resumed.
        fired: rule code → first epoch at which the rule fired.
        ended_by: rule that ended the run early; empty if no rule ended the run.
    """

    run_id: str
    status: str
    epochs: int
    resumed_from: int
    headline: dict[str, float]
    fired: Mapping[str, int] = field(default_factory=dict)
    ended_by: str = ""


def training_steps(
    job: TrainingJob, stop: Callable[[], bool], report: Callable[[Any], None]
) -> Generator[None, None, TrainingResult]:
    """Train a job's specification and log the run; yield while a GPU computes an epoch.

    If `stop` returns True between two epochs, a resume file is written and Interrupted is raised. The same job then resumes
    from this file. After every epoch, `report` is called with (epoch, epochs, note, rule → epoch of first fire).
    """
    with on_device(job.device):
        tracker, snapshot = _opened(job.store, job.experiment_id, job.study)
        recorder = _acquire_run(job, tracker, snapshot, report)
        if isinstance(recorder, StoredRun):
            return TrainingResult(recorder.run_id, ELSEWHERE, 0, 0, {})
        try:
            with recorder.writer.claim:
                return (yield from _train_run(recorder, StopTagPoller(tracker, job.study, stop)))
        except (KeyboardInterrupt, GeneratorExit):
            recorder.writer.interrupt("interrupted")
            raise


@lru_cache(maxsize=2)
def _opened(store: str, experiment_id: str, study: str) -> tuple[MlflowTracker, StudySnapshot]:
    """Return the tracker and the study snapshot that all jobs of this process share."""
    tracker = MlflowTracker(store, schema.EXPERIMENT, experiment_id, waits=True)
    return tracker, StudySnapshot(tracker, study)


def _acquire_run(
    job: TrainingJob, tracker: MlflowTracker, snapshot: StudySnapshot, report: Callable[[Any], None]
) -> _RunRecorder | StoredRun:
    """Create a run and acquire the lease of its specification.

    Return the recorder of the run, or the run of another process that trains the specification or has trained it.
    """
    finished = partial(finished_but(job.known, job.watch), job.spec)
    if job.yields and (other_run := finished(snapshot.attempts(job.spec.identity))):
        return other_run
    attempts = _Attempts(tracker, job.spec.identity)
    if not job.yields or not snapshot.alone:  # else the run is created first, and the query of `acquire` is enough
        attempts.refresh()
    if job.yields and (other_run := finished(attempts.seen) or lease_owner(attempts.seen, attempts.signs)):
        snapshot.record_outcome(free=False)
        return other_run
    setup = build_setup(job.spec, device_of(job.spec.device_class), Path(job.data_root) if job.data_root else None)
    check_room(setup)
    with refused(FILES):
        writer_options = (job.study, job.study_run, job.adopt, job.keep, None, job.conformance, job.lease)
        writer = RunWriter(tracker, setup, *writer_options)
    params = schema.params(job.spec)
    attempts.mine = writer.run_id
    try:
        if job.yields:
            other_run = acquire(tracker, writer.run_id, attempts.refresh, finished, attempts.signs, params)
            snapshot.record_outcome(free=not other_run)
            if other_run:
                writer.discard_run()
                return other_run
        else:
            set_lease_state(tracker, writer.run_id, params)
        earlier_runs = attempts.seen if job.yields else ()  # a forced training uses no uploaded state of another run
        return _RunRecorder(job, setup, writer, KeptState(tracker, writer.run_id, earlier_runs), report)
    except (KeyboardInterrupt, GeneratorExit):
        writer.interrupt("interrupted")
        raise


class _Attempts:
    """Cached list of all runs of one specification; `refresh` also closes runs of killed workers."""

    def __init__(self, tracker: Tracker, identity: str):
        self._tracker, self._identity = tracker, identity
        self.signs = HeartbeatMonitor()
        self.seen: Sequence[StoredRun] = ()
        self.mine = ""  # the run that this process has created; it has no heartbeat while it waits for its lease

    def refresh(self) -> Sequence[StoredRun]:
        self.seen = self._tracker.search({schema.TAG_SPEC: self._identity})
        close_abandoned(self._tracker, [run for run in self.seen if run.run_id != self.mine], self.signs)
        return self.seen


def _train_run(recorder: _RunRecorder, stop: Callable[[], bool]) -> Generator[None, None, TrainingResult]:
    """Train the run from the first epoch or from its resume file, and record the results."""
    trainer, run_id = Trainer(recorder.setup), recorder.writer.run_id
    try:
        rows, monitor = recorder.begin(trainer)
        outcome = yield from train_epochs(trainer, recorder, stop, rows[-1] if rows else None, lambda: monitor.ended_by)
        recorder.complete(trainer, outcome)
    except LeaseLost as error:
        recorder.writer.abandon()
        LOG.warning("%s", error)
        return TrainingResult(run_id, ELSEWHERE, 0, 0, {})
    except BaseException as error:
        recorder.record_error(trainer, error)
        raise
    metrics, fired, resumed_from = headline(outcome), dict(monitor.fired), rows[-1].epoch if rows else 0
    return TrainingResult(run_id, outcome.status, outcome.epochs, resumed_from, metrics, fired, outcome.ended_by)


class _RunRecorder:
    """Recorder of one run: logs metrics, checks rules, writes resume files, and records how the run ends."""

    def __init__(
        self, job: TrainingJob, setup: RunSetup, writer: RunWriter, kept: KeptState, report: Callable[[Any], None]
    ):
        self.setup, self.writer, self._kept, self._report = setup, writer, kept, report  # kept: states of all attempts
        self._watch = job.watch.of(job.spec.control)
        self._resume = ResumeFile(resume_folder(registry_folder(job.store)), _resume_name(job.spec, self._watch))

    def begin(self, trainer: Trainer) -> tuple[list[EpochRow], Monitor]:
        """Record the initial network and load the resume state. Return its rows and the rule monitor."""
        with refused(FILES):
            self.writer.start(self.setup.network)  # first, because a resume state changes the network
            self._kept.fetch(self._resume.path, beyond=self._resume.reached())
            rows = self._resume.read_into(trainer)
            self.writer.restore_rows(rows)
        self._monitor = Monitor(self._watch, self.writer.tag, rows)
        return rows, self._monitor

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None:
        with refused(FILES):
            self._monitor.receive(row)  # first, so that fired rules are in the store with the epoch's points
            self.writer.on_epoch(row, trainer)
            if self._resume.due():
                self._resume.write(trainer, self.writer.rows)
                self._kept.offer(self._resume.path, row.epoch)
        self._report((row.epoch, self.setup.spec.epochs, _note(row), dict(self._monitor.fired)))

    def complete(self, trainer: Trainer, outcome: TrainingOutcome) -> None:
        """Record the results, and remove the resume states."""
        with refused(FILES):
            self.writer.record_training(trainer)
            self.writer.complete(outcome)
        self._resume.remove()
        self._kept.remove()

    def record_error(self, trainer: Trainer, error: BaseException) -> None:
        """Record that an error ended the training, and save the state from which the run can resume.

        Raises:
            StoreError: the error came from the store; the message also states where the training can resume.
        """
        if isinstance(error, Interrupted):
            try:
                self._resume.write(trainer, self.writer.rows)  # between epochs: weights and rows belong together
                self._kept.offer(self._resume.path, trainer.epoch, now=True)
            finally:
                self.writer.interrupt(str(error))
        elif isinstance(error, (KeyboardInterrupt, GeneratorExit)):  # training cannot resume from half an epoch
            self.writer.interrupt("interrupted inside an epoch; the same command resumes from the last saved state")
        elif isinstance(error, StoreError):  # store and files are written only between epochs
            state = self._save_state(trainer)
            with suppress(RegistryError, OSError):
                self.writer.fail(error)
            raise StoreError(f"{str(error).rstrip('.?')}. {state}") from error
        else:
            self.writer.fail(error)

    def _save_state(self, trainer: Trainer) -> str:
        """Write a resume file for a run that cannot be logged, and return a message for the user."""
        rows, epoch = self.writer.rows, trainer.epoch
        if not rows:
            return "Nothing of this run was trained yet"
        with suppress(OSError):
            if rows[-1].epoch == epoch:  # else the resumed run would lack the row of an epoch
                self._resume.write(trainer, rows)
                return f"The state after epoch {epoch} is saved; the same command resumes the run from this state"
        return (
            "The current state could not be saved; "
            "the same command resumes the run from its last resume file, or restarts the run"
        )


def _resume_name(spec: RunSpec, watch: MonitoredRules) -> str:
    """Return the name of the resume file, which depends on the stop rules and on the code.

    A run must not be resumed with other rules or code. On a CPU, the name also depends on the configuration. Another
    configuration rounds differently, so an audit could not reproduce the run.
    """
    code = {name: entry for name, entry in fingerprint(spec).items() if "diagnostics/" not in name}
    rounding = configuration() if spec.device_class == "cpu" else None
    parts = [jsonio.digest_of(part)[:16] for part in (watch.wish, code, rounding) if part]
    return "-".join([spec.identity, *parts])


def _note(row: EpochRow) -> str:
    """Return the main metric or the loss of an epoch as text for a progress bar."""
    scalars = row.measurements.scalars
    for name in table("progress_bar", [headline_of(scalars)]):
        reading = scalars.get(name)
        if reading is not None and reading.value is not None:
            return f"{name.removesuffix('_train')} {reading.value:.3f}"
    return ""


def training_text(result: TrainingResult) -> str:
    """Return one line about the end of training: status, metrics, and fired rules."""
    resumed = f", resumed after epoch {result.resumed_from}" if result.resumed_from else ""
    if result.status == ELSEWHERE:
        return f"trained by another process: run {result.run_id}"
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in result.headline.items())
    status = f"stopped early, {result.ended_by}" if result.ended_by else result.status
    return joined(f"{status}{resumed}: {metrics}", fired_text(result.fired))


# The command `train`: one specification, trained by this call, with its progress.


@dataclass(frozen=True, repr=False)
class TrainResult(Result):
    """Result of `run_train`.

    Attributes:
        ended_by: rule that ended the run early; empty if no rule ended the run.
        result: result of training, or None if the store already had the run.
        other_code: changes in the code since an existing run was trained, one line per plug-in.
        page: address of the MLflow page that compares all runs of the experiment; empty if there is no page.
    """

    run_id: str
    status: str
    ended_by: str = ""
    result: TrainingResult | None = None
    other_code: tuple[str, ...] = ()
    page: str = ""
    store: str = ""

    def lines(self) -> Iterator[str]:
        status = f"{self.status.replace('_', ' ')} ({self.ended_by})" if self.ended_by else self.status
        yield f"run {self.run_id}: " + (status if self.result else f"already {status} (--force trains it again)")
        if self.result:
            yield "  " + " · ".join(f"{name} {value:.4g}" for name, value in self.result.headline.items())
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
    study, keep, force = options.study, training.keep, training.force
    spec, watch, resources = _checked(options, training, executor)
    tracker = open_tracker(location.store, location.experiment)
    attempts = [] if force else tracker.search({schema.TAG_SPEC: spec.identity})
    existing_run = newest_finished(attempts, spec, watch)
    changed = code_changes(tracker, existing_run, spec) if existing_run else ()
    log_code_changes({run_name(spec): changed} if changed else {}, training.keep_trained)
    if existing_run and (training.keep_trained or not changed):
        return _there(tracker, existing_run, changed)
    if text := study and stopped_by_tag(tracker, study):
        raise Interrupted(text)
    tracker.check_place()
    make_ready([find_plugins(spec).dataset], location.root)
    if text := kept_text([spec], keep.keep_states):
        LOG.info("%s %s", run_name(spec), text)
    job = TrainingJob(
        spec,
        tracker.uri,
        experiment_id=tracker.experiment_id,
        study=study,
        adopt=mlflow_run_in_progress(),
        threads=options.threads,
        keep=keep,
        data_root=location.data_root,
        watch=watch,
        conformance=cached_conformance(spec, tracker.uri),
        device=options.device,
        lease=int(training.lease),
        known=ended_among(attempts),
        yields=not force,
    )
    while True:
        result = _trained_by(executor or default_executor([spec]), job, resources, tracker)
        if result.status != ELSEWHERE:
            return replace(_there(tracker, tracker.get(result.run_id), changed), result=result)
        with stop_on_signal() as stop:
            trained_runs, _, _ = wait_for_others(
                tracker, [spec], finished_but(job.known, watch), HeartbeatMonitor(), stop
            )
        if trained_runs:
            return _there(tracker, trained_runs[spec.identity], changed)


def _there(tracker: MlflowTracker, run: StoredRun, changed: tuple[str, ...]) -> TrainResult:
    page = in_browser(tracker.uri, mlflow_page(tracker, experiment=run.experiment))
    ended_by = run.tags.get(schema.TAG_STOPPED_ON, "")
    status = run.tags[schema.TAG_STATUS]
    return TrainResult(run.run_id, status, ended_by, other_code=changed, page=page, store=tracker.uri)


def _trained_by(executor: str, job: TrainingJob, resources: JobResources, tracker: Tracker) -> TrainingResult:
    """Train the job with an executor; return its result or raise its error."""
    end_events: list[JobEvent] = []
    title = f"training {pluralise(job.spec.epochs, 'epoch')} on {job.spec.device_class}"
    plugin = executors.CATALOG.get(executor)
    with (
        plugin.opened(resources) as capacity,
        on_device(job.device),
        Progress(title, [run_name(job.spec)], training_text) as progress,
        stop_on_signal() as stop,
    ):
        check_reach(job.store, capacity)

        def receive(event: JobEvent) -> None:
            if event.kind in ENDS:
                end_events.append(event)
            if event.kind not in ("failed", "stopped"):  # the raised error already reports these
                progress.show(event)

        plugin.run([job], training_steps, resources, stop, receive)
    end = end_events[0]
    if end.kind == "stopped":
        raise Interrupted(end.value or "stopped before the run began")
    if end.kind == "failed":
        close_abandoned(tracker, tracker.search({schema.TAG_SPEC: job.spec.identity}))  # runs of a killed process
        failure = RegistryError(end.value)
        failure.exit_code = end.refused or failure.exit_code
        raise failure
    return end.value


def _checked(
    options: SpecOptions, training: TrainingOptions, executor: str
) -> tuple[RunSpec, MonitoredRules, JobResources]:
    """Return the specification, the rules to check and the resources; raise one error for all problems."""
    study, stop_on = options.study, ",".join(training.stop_on)
    problems = [f"study: {name_problem(study)}"] if study and name_problem(study) else []
    resources = asked_resources(executor, ClusterOptions(), options.device, problems)
    silence_seconds = parse_times(training, problems)
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


def default_executor(specs: Sequence[RunSpec], several: bool = False) -> str:
    """Return the name of the default executor for these runs.

    The executor `local` starts separate processes. It is used for several runs on a CPU, and for runs with third-party code,
    because this code could end its process. The executor `side_by_side` trains all other runs in this process. There, several
    runs can share a GPU, and a debugger can step into a single run.
    """
    if any(map(runs_others_code, specs)):
        return "local"
    return "local" if several and not on_gpu(specs) else "side_by_side"


def kept_text(specs: Sequence[RunSpec], states: int) -> str:
    """Return the number and maximum size of the stored training states as text; empty if none are stored."""
    if not states or not specs:
        return ""
    kinds = {(spec.setting.identity, spec.method, spec.control): spec for spec in specs}
    largest_size = max(kept_bytes(spec) for spec in kinds.values())
    count = max(len(kept_epochs(states, spec.epochs)) for spec in specs)
    return f"keeps {count} training states of at most {largest_size / 2**20:,.1f} MiB each per run"
