"""Train one spec into the store: the job that `train` runs here and `study` runs many times."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from fa_registry import datasets, jsonio
from fa_registry.errors import Interrupted, InvalidFields, RegistryError, StoreError
from fa_registry.process_ownership import LEASE
from fa_registry.records import RunSpec
from fa_registry.studies import executors
from fa_registry.studies.executors.base import ENDS, SILENCE, JobEvent, JobResources
from fa_registry.studies.executors.local import stop_on_signal
from fa_registry.text_safety import name_problem
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker, newest_first
from fa_registry.tracking.lease import (
    LONGEST,
    SHORTEST,
    HeartbeatMonitor,
    LeaseLost,
    acquire,
    lease_owner,
    set_lease_state,
)
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.resume_upload import KeptState
from fa_registry.tracking.store_errors import refused
from fa_registry.tracking.writer import RetentionOptions, RunWriter
from fa_registry.training.code_fingerprint import FIRST, fingerprint, runs_others_code
from fa_registry.training.devices import device_of, on_device
from fa_registry.training.loop import EpochRow, TrainingOutcome, train_epochs
from fa_registry.training.resume import ResumeFile
from fa_registry.training.specs import parse_spec, run_name, whole_number
from fa_registry.training.task import Task, build_task, check_room, too_large
from fa_registry.training.trainer import Trainer
from fa_registry.training.trainer_state import kept_bytes, kept_epochs
from fa_registry.workflows.cleanup import close_gone, close_zombies, resume_folder
from fa_registry.workflows.cluster_options import asked_resources, check_reach
from fa_registry.workflows.conformance import cached_conformance, code_changes, log_code_changes
from fa_registry.workflows.coordination import StopTagPoller, StudySnapshot, stopped_by_tag, wait_for_others
from fa_registry.workflows.data import make_ready
from fa_registry.workflows.editions import study_edition
from fa_registry.workflows.options import Cluster, StoreLocation
from fa_registry.workflows.progress import Progress, joined
from fa_registry.workflows.rule_monitor import UNWATCHED, Monitor, MonitoredRules, checked_watch, fired_text
from fa_registry.workflows.stores import in_browser, mlflow_page, mlflow_run_in_progress, open_tracker, registry_folder

LOG = logging.getLogger(__name__)
ELSEWHERE = "elsewhere"  # status of a job whose spec another process trains
FILES = "the disk with this run's files"  # named in errors that are not the store's


@dataclass(frozen=True)
class TrainingJob:
    """One run to train.

    Attributes:
        store: tracking URI.
        adopt: id of a run that `mlflow run` already started for it.
        watch: the rules to check during training, and those that end the run.
        conformance: of its method, to be recorded with the run.
        device: which of several cards, `cuda:1`.
        lease: see tracking.lease.
        known: ids of existing runs of this spec that do not count; a run that another process finishes meanwhile
            counts.
        yields: whether this job ends if another process trains the spec.
    """

    spec: RunSpec
    store: str
    experiment: str = schema.EXPERIMENT
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

    @property
    def root(self) -> Path | None:
        return Path(self.data_root) if self.data_root else None


def headline(outcome: TrainingOutcome) -> dict[str, float]:
    """Return the most important metrics; those without a value are left out."""
    names = ("accuracy", "growth_max", "h_L", "g_L", "gamma_deep_mean", "costate_cosine_mean")
    known = {name: outcome.final.scalars[name].value for name in names if name in outcome.final.scalars}
    return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training job.

    Attributes:
        run_id: of the other process's run if status is ELSEWHERE.
        status: ELSEWHERE if another process trains, or has just trained, the specification.
        fired: rule → the epoch at which it first fired.
        ended_by: why a run was stopped early.
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
    """Train `job` into the store; yield while a GPU works on an epoch.

    If stopped between epochs, it writes a resume file and raises Interrupted; the same job then resumes from there.

    Args:
        report: receives (epoch, epochs, note, rule → epoch of first fire) after every epoch.
    """
    with on_device(job.device):
        return (yield from _training_steps(job, stop, report))


def _training_steps(
    job: TrainingJob, stop: Callable[[], bool], report: Callable[[Any], None]
) -> Generator[None, None, TrainingResult]:
    tracker, overview = _opened(job.store, job.experiment, job.experiment_id, job.study)
    finished = partial(finished_but(job.known, job.watch), job.spec)
    if job.yields and (other := finished(overview.attempts(job.spec.identity))):
        return _elsewhere(other)
    attempts = _Attempts(tracker, job.spec.identity)
    if not job.yields or not overview.alone:  # else the run is created first, and the query of `acquire` is enough
        attempts.refresh()
    if job.yields and (other := finished(attempts.seen) or lease_owner(attempts.seen, attempts.signs)):
        overview.record_outcome(free=False)
        return _elsewhere(other)
    task = build_task(job.spec, device_of(job.spec.device_class), job.root)
    check_room(task)
    with refused(FILES):
        own = (job.study, job.study_run, job.adopt, job.keep, None, job.conformance, job.lease)
        writer = RunWriter(tracker, task, *own)
    mine, params = writer.run_id, schema.params(job.spec)
    attempts.mine = mine
    try:
        if not job.yields:
            set_lease_state(tracker, mine, params)
        else:
            other = acquire(tracker, mine, attempts.refresh, finished, attempts.signs, params)
            overview.record_outcome(free=not other)
            if other:
                writer.discard_run()
                return _elsewhere(other)
        kept = KeptState(tracker, mine, attempts.seen if job.yields else ())
        with writer.claim:
            return (yield from _trained(job, task, writer, kept, StopTagPoller(tracker, job.study, stop), report))
    except (KeyboardInterrupt, GeneratorExit):
        writer.interrupt("interrupted")
        raise


class _Attempts:
    """Cached runs of one specification. `refresh()` reads them again and closes runs of dead workers."""

    def __init__(self, tracker: Tracker, identity: str):
        self._tracker, self._identity = tracker, identity
        self.signs = HeartbeatMonitor()
        self.seen: Sequence[StoredRun] = ()
        self.mine = ""  # the run that this process has created; it has no heartbeat while it waits for its lease

    def refresh(self) -> Sequence[StoredRun]:
        self.seen = self._tracker.search({schema.TAG_SPEC: self._identity})
        close_gone(self._tracker, [run for run in self.seen if run.run_id != self.mine], self.signs)
        return self.seen


@lru_cache(maxsize=2)
def _opened(store: str, experiment: str, experiment_id: str, study: str) -> tuple[MlflowTracker, StudySnapshot]:
    """Return the tracker and snapshot shared by all jobs of this process.

    They are cached because opening a store queries all of its experiments.
    """
    tracker = MlflowTracker(store, experiment, experiment_id, waits=True)
    return tracker, StudySnapshot(tracker, study)


def _elsewhere(run: StoredRun) -> TrainingResult:
    return TrainingResult(run.run_id, ELSEWHERE, 0, 0, {})


def _trained(
    job: TrainingJob,
    task: Task,
    writer: RunWriter,
    kept: KeptState,
    stop: Callable[[], bool],
    report: Callable[[Any], None],
) -> Generator[None, None, TrainingResult]:
    """Train the job's task from its first epoch or its resume file, and log all results."""
    trainer, watch = Trainer(task), job.watch.of(job.spec.control)
    resume = ResumeFile(resume_folder(registry_folder(job.store)), _resume_name(job.spec, watch))
    try:
        with refused(FILES):
            kept.fetch(resume.path, beyond=resume.reached())
            rows = resume.read_into(trainer)
            writer.start(build_task(job.spec, task.device, job.root).network if rows else task.network)
            writer.restore_rows(rows)
        monitor = Monitor(watch, writer.tag, rows)
        listener = _Listener(writer, resume, kept, monitor, report)
        outcome = yield from train_epochs(trainer, listener, stop, rows[-1] if rows else None, lambda: monitor.ended_by)
        with refused(FILES):
            writer.record_training(trainer)
            writer.complete(outcome)
    except LeaseLost as error:
        writer.abandon()
        LOG.warning("%s", error)
        return TrainingResult(writer.run_id, ELSEWHERE, 0, 0, {})
    except Interrupted as error:
        try:
            resume.write(trainer, writer.rows)  # between epochs: weights, generators and rows belong together
            kept.offer(resume.path, trainer.epoch, now=True)
        finally:
            writer.interrupt(str(error))
        raise
    except (KeyboardInterrupt, GeneratorExit):  # training cannot resume from half an epoch
        writer.interrupt("interrupted inside an epoch; the same command resumes from the last saved state")
        raise
    except StoreError as error:  # store and files are written only between epochs
        state = _kept(resume, trainer, writer.rows)
        with suppress(RegistryError, OSError):
            writer.fail(error)
        raise StoreError(f"{str(error).rstrip('.?')}. {state}") from error
    except BaseException as error:
        writer.fail(error)
        raise
    resume.remove()
    kept.remove()
    figures, fired = headline(outcome), dict(monitor.fired)
    resumed_from = len(rows) - 1 if rows else 0
    return TrainingResult(writer.run_id, outcome.status, outcome.epochs, resumed_from, figures, fired, outcome.ended_by)


def _kept(resume: ResumeFile, trainer: Trainer, rows: list[EpochRow]) -> str:
    """Save the state of a run that cannot be logged; return a message about what is saved."""
    if not rows:
        return "Nothing of this run was trained yet"
    with suppress(OSError):
        if rows[-1].epoch == trainer.epoch:  # else the resumed run would lack the row of an epoch
            resume.write(trainer, rows)
            return f"This run is saved after epoch {trainer.epoch}, and resumes from there"
    return "The current state could not be saved; the run will resume from its last resume file or restart"


def _resume_name(spec: RunSpec, watch: MonitoredRules) -> str:
    """Return the name of a run's resume file.

    A run that a rule may end has a separate file, because the state of other runs may be after its end. A run of
    changed code also has one: a half-trained run must not be continued with edited code.
    """
    changed = {
        name: entry for name, entry in fingerprint(spec).items() if entry != FIRST and "diagnostics/" not in name
    }
    parts = [jsonio.digest_of(part)[:16] for part in (watch.wish, changed) if part]
    return "-".join([spec.identity, *parts])


class _Listener:
    """Receives every epoch: logs it, checks the rules, saves due resume files and reports progress."""

    def __init__(
        self, writer: RunWriter, resume: ResumeFile, kept: KeptState, monitor: Monitor, report: Callable[[Any], None]
    ):
        self._writer, self._resume, self._kept, self._monitor, self._report = writer, resume, kept, monitor, report

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None:
        with refused(FILES):
            self._monitor.receive(row)  # first, so that fired rules are in the store with the epoch's points
            self._writer.on_epoch(row, trainer)
            if self._resume.due():
                self._resume.write(trainer, self._writer.rows)
                self._kept.offer(self._resume.path, row.epoch)
        self._report((row.epoch, trainer.task.spec.epochs, _note(row), dict(self._monitor.fired)))


def _note(row: EpochRow) -> str:
    """Return the text of an epoch for a progress bar: the accuracy, or the loss if there are no classes."""
    for name in ("accuracy", "loss_train"):
        reading = row.measurements.scalars.get(name)
        if reading is not None and reading.value is not None:
            return f"{name.removesuffix('_train')} {reading.value:.3f}"
    return ""


def finished_run(tracker: Tracker, spec: RunSpec, watch: MonitoredRules = UNWATCHED) -> StoredRun | None:
    """Return the run that makes training this spec unnecessary, if there is one: see `newest_finished`."""
    return newest_finished(tracker.search({schema.TAG_SPEC: spec.identity}), spec, watch)


def newest_finished(runs: Sequence[StoredRun], spec: RunSpec, watch: MonitoredRules = UNWATCHED) -> StoredRun | None:
    """Return the newest complete or diverged run of a spec (a diverged one would diverge again).

    If there is none, return one that was stopped early by the same stop rules, which would stop it again.
    """
    runs = newest_first(runs)
    for run in runs:
        if run.tags.get(schema.TAG_STATUS) in schema.FINISHED_STATUSES:
            return run
    wish = watch.of(spec.control).wish
    for run in runs if wish else ():
        if (run.tags.get(schema.TAG_STATUS), run.tags.get(schema.TAG_STOP_ON)) == (schema.STOPPED_EARLY, wish):
            return run
    return None


def ended_among(attempts: Iterable[StoredRun]) -> frozenset[str]:
    """Return the ids of the runs that will not change any more."""
    return frozenset(run.run_id for run in attempts if run.state != "RUNNING")


def finished_but(
    known: Iterable[str], watch: MonitoredRules
) -> Callable[[RunSpec, Sequence[StoredRun]], StoredRun | None]:
    """Return `newest_finished` without the runs with these ids."""

    def finished(spec: RunSpec, attempts: Sequence[StoredRun]) -> StoredRun | None:
        return newest_finished([run for run in attempts if run.run_id not in known], spec, watch)

    return finished


def training_text(result: TrainingResult) -> str:
    """Describe how training ended: status, metrics, and which rules fired."""
    resumed = f", resumed after epoch {result.resumed_from}" if result.resumed_from else ""
    if result.status == ELSEWHERE:
        return f"trained by another process: run {result.run_id}"
    figures = ", ".join(f"{name} {value:.4g}" for name, value in result.headline.items())
    status = f"stopped early, {result.ended_by}" if result.ended_by else result.status
    return joined(f"{status}{resumed}: {figures}", fired_text(result.fired))


# The train command: one configuration, here, with its progress.


@dataclass(frozen=True)
class TrainResult:
    """A run that is in the store.

    Attributes:
        ended_by: why it was stopped early, if it was.
        result: None if the run existed before.
        other_code: what changed since an existing run was trained, one line per plug-in; the run was kept, or trained
            again.
        page: address of all runs of its experiment side by side in MLflow's pages; empty if there are none.
    """

    run_id: str
    status: str
    ended_by: str = ""
    result: TrainingResult | None = None
    other_code: tuple[str, ...] = ()
    page: str = ""


def run_train(
    fields: Mapping[str, Any],
    place: StoreLocation = StoreLocation(),
    study: str = "",
    edition: str = "",
    stop_on: str = "",
    threads: int = 1,
    keep: RetentionOptions = RetentionOptions(),
    force: bool = False,
    keep_trained: bool = False,
    executor: str = "",
    silence: str | int = SILENCE,
    lease: str | int = LEASE,
) -> TrainResult:
    """Train one spec, unless the store has a finished run of it that today's code trained or that is kept.

    Args:
        fields: of a run specification, as typed.
        study: study that the run is tagged as a part of.
        edition: rules that are checked during training, instead of the study's.
        stop_on: rules that end the run, `D1,D2`.
        keep: which weights, states and points are kept.
        keep_trained: keep a run that other code has trained, instead of training it again.
        executor: a name of studies.executors.CATALOG; empty: the default_executor.
        silence: see Resources.

    Raises:
        InvalidFields: names everything that is wrong, before anything is written.
        RegistryError: training failed; has the traceback.
    """
    spec, watch, resources = _checked(fields, edition, stop_on, study, executor, silence, threads, lease)
    tracker = open_tracker(place.store, place.experiment)
    attempts = [] if force else tracker.search({schema.TAG_SPEC: spec.identity})
    present = newest_finished(attempts, spec, watch)
    changed = code_changes(tracker, present, spec) if present else ()
    log_code_changes({run_name(spec): changed} if changed else {}, keep_trained)
    if present and (keep_trained or not changed):
        return _there(tracker, present, changed)
    if text := study and stopped_by_tag(tracker, study):
        raise Interrupted(text)
    tracker.check_place()
    make_ready([spec.dataset], place.root)
    if text := kept_text([spec], keep.states):
        LOG.info("%s %s", run_name(spec), text)
    job = TrainingJob(
        spec,
        tracker.uri,
        experiment_id=tracker.experiment_id,
        study=study,
        adopt=mlflow_run_in_progress(),
        threads=threads,
        keep=keep,
        data_root=place.data_root,
        watch=watch,
        conformance=cached_conformance(spec, tracker.uri),
        device=str(fields.get("device", "")),
        lease=int(lease),
        known=ended_among(attempts),
        yields=not force,
    )
    while True:
        result = _trained_by(executor or default_executor([spec]), job, resources, tracker)
        if result.status != ELSEWHERE:
            return replace(_there(tracker, tracker.get(result.run_id), changed), result=result)
        with stop_on_signal() as stop:
            done, _, _ = wait_for_others(tracker, [spec], finished_but(job.known, watch), HeartbeatMonitor(), stop)
        if done:
            return _there(tracker, done[spec.identity], changed)


def _there(tracker: MlflowTracker, run: StoredRun, changed: tuple[str, ...]) -> TrainResult:
    page = in_browser(tracker.uri, mlflow_page(tracker, experiment=run.experiment))
    ended_by = run.tags.get(schema.TAG_STOPPED_ON, "")
    return TrainResult(run.run_id, run.tags[schema.TAG_STATUS], ended_by, other_code=changed, page=page)


def _trained_by(executor: str, job: TrainingJob, resources: JobResources, tracker: Tracker) -> TrainingResult:
    """Return the job's result, or raise its error."""
    end = _run_by(executor, job, resources, run_name(job.spec))
    if end.kind == "stopped":
        raise Interrupted(end.value or "stopped before it began")
    if end.kind == "failed":
        close_zombies(tracker, {schema.TAG_SPEC: job.spec.identity})  # runs of a killed process
        failure = RegistryError(end.value)
        failure.exit_code = end.refused or failure.exit_code
        raise failure
    return end.value


def _checked(
    fields: Mapping[str, Any],
    edition: str,
    stop_on: str,
    study: str,
    executor: str,
    silence: str | int,
    threads: int,
    lease: str | int,
) -> tuple[RunSpec, MonitoredRules, JobResources]:
    """Return the spec, the rules to check and the resources; raise one error that names everything wrong."""
    problems = [f"study: {name_problem(study)}"] if study and name_problem(study) else []
    resources = asked_resources(executor, Cluster(), str(fields.get("device", "")), problems)
    quiet = parse_seconds("silence", silence, problems)
    parse_lease(lease, problems)
    spec = None
    try:
        spec = parse_spec(fields)
    except InvalidFields as error:
        problems += error.problems
    problems += too_large(spec, datasets.get(spec.dataset).card) if spec else []
    watch = checked_watch(edition or study_edition(study), stop_on, problems)
    if spec and watch.wish and not watch.of(spec.control).wish:
        problems.append(f"stop_on: the {spec.control} control is never judged, so no rule ends it; found {stop_on}")
    if problems or spec is None:
        raise InvalidFields("run specification", problems)
    return spec, watch, replace(resources, device=spec.device_class, threads=threads, silence=quiet)


def parse_seconds(name: str, typed: str | int, problems: list[str], least: int = 0, most: int | None = None) -> int:
    """Return the seconds; errors are added to `problems`."""
    try:
        return whole_number(typed, least=least, **({} if most is None else {"most": most}))
    except ValueError as error:
        problems.append(f"{name}: {error} (seconds)")
        return least


def parse_lease(typed: str | int, problems: list[str]) -> int:
    return parse_seconds("lease", typed, problems, SHORTEST, LONGEST)


def default_executor(specs: Sequence[RunSpec], several: bool = False) -> str:
    """Return the default executor for these runs.

    Third-party code, which may end its process, and `several` runs on the CPU are trained in separate processes.
    Everything else is trained in this process: on a GPU jobs share the card in turns, and a debugger can step into a
    single run.
    """
    if any(map(runs_others_code, specs)):
        return "local"
    return "local" if several and not on_gpu(specs) else "side_by_side"


def kept_text(specs: Sequence[RunSpec], states: int) -> str:
    """Describe how many states a run keeps, and the largest size of one; empty if none are kept."""
    if not states or not specs:
        return ""
    kinds = {(spec.setting.identity, spec.method, spec.control): spec for spec in specs}
    most = max(kept_bytes(spec, datasets.get(spec.dataset).card) for spec in kinds.values())
    count = max(len(kept_epochs(states, spec.epochs)) for spec in specs)
    return f"keeps {count} states of at most {most / 2**20:,.1f} MiB a run"


def on_gpu(specs: Iterable[RunSpec]) -> bool:
    return any(spec.device_class == "cuda" for spec in specs)


def _run_by(executor: str, job: TrainingJob, resources: JobResources, name: str) -> JobEvent:
    """Run the job under a progress bar; return how it ended."""
    ends: list[JobEvent] = []
    title = f"training {job.spec.epochs} epochs on {job.spec.device_class}"
    chosen = executors.CATALOG.get(executor)
    with (
        chosen.opened(resources) as room,
        on_device(job.device),
        Progress(title, [name], training_text) as progress,
        stop_on_signal() as stop,
    ):
        check_reach(job.store, room)

        def receive(event: JobEvent) -> None:
            if event.kind in ENDS:
                ends.append(event)
            if event.kind not in ("failed", "stopped"):  # the raised error already reports these
                progress.show(event)

        chosen.run([job], training_steps, resources, stop, receive)
    return ends[0]
