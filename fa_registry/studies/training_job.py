"""Training of one job: acquire the lease of its specification, train the run, and record it.

`acquire` comes first, so no specification is trained by two workers; `record` comes after each epoch, so a killed process loses one
epoch. The commands `train` and `study` call `training_steps` in the processes of an executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.architectures.base import stream_of
from fa_registry.errors import Interrupted, RegistryError, StoreError
from fa_registry.metrics import Headline, headline_of, table, value_in
from fa_registry.records import RunSpec
from fa_registry.studies.coordination import (
    StopTagPoller,
    StudySnapshot,
)
from fa_registry.studies.progress import joined
from fa_registry.studies.rule_monitor import Monitor, MonitoredRules, fired_text
from fa_registry.studies.training_plan import TrainingJob, finished_but
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.cleanup import close_abandoned, resume_folder
from fa_registry.tracking.lease import LeaseLost, acquire, lease_owner, set_lease_state
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.resume_upload import KeptState
from fa_registry.tracking.run_state import HeartbeatMonitor
from fa_registry.tracking.store_errors import refused
from fa_registry.tracking.stores import (
    registry_folder,
)
from fa_registry.tracking.writer import RunWriter
from fa_registry.training.code_fingerprint import fingerprint
from fa_registry.training.devices import configuration, device_of, on_device
from fa_registry.training.loop import EpochRow, TrainingOutcome, train_epochs
from fa_registry.training.resume import ResumeFile
from fa_registry.training.run_setup import RunSetup, build_setup, check_room
from fa_registry.training.trainer import Trainer

LOG = logging.getLogger(__name__)
ELSEWHERE = "elsewhere"  # status of a job whose spec another process trains
FILES = "the disk with this run's files"  # named in errors that do not come from the store


def headline(outcome: TrainingOutcome) -> dict[str, float]:
    """Return the most important final metrics, without metrics that have no value."""
    names = table("train_command", [headline_of(outcome.final)])
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
            with recorder.writer.holder:
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
        outcome = yield from train_epochs(trainer, recorder, stop, rows, lambda: monitor.ended_by)
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
        stream = stream_of(self.setup.network, self.setup.eval_batch[0][:2])
        self._monitor = Monitor(self._watch, self.writer.tag, rows, stream)
        return rows, self._monitor

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None:
        """Log an epoch, and write the resume file if it is due."""
        with refused(FILES):
            self._monitor.receive(row)  # first, so that fired rules are in the store with the epoch's points
            self.writer.on_epoch(row, trainer)
            if self._resume.due():
                self._resume.write(trainer, self.writer.rows)
                self._kept.offer(self._resume.path, row.epoch)
        self._report(
            (row.epoch, self.setup.spec.epochs, _note(row, self.setup.task.headline), dict(self._monitor.fired))
        )

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


def _note(row: EpochRow, headline: Headline) -> str:
    """Return the main metric or the loss of an epoch as text for a progress bar."""
    scalars = row.measurements.scalars
    for name in table("progress_bar", [headline]):
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
