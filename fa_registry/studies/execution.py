"""Execution of training jobs: an executor trains them, and other workers are waited for.

This is the only loop that trains: the command `train` runs it with one job, a study with all its jobs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fa_registry.errors import Interrupted
from fa_registry.records import RunSpec
from fa_registry.studies import executors
from fa_registry.studies.coordination import StopTagPoller, check_machines, check_reach, default_processes, on_gpu
from fa_registry.studies.executors.base import ENDS, JobEvent, JobResources
from fa_registry.studies.executors.local import stop_on_signal
from fa_registry.studies.progress import Progress
from fa_registry.studies.training_job import ELSEWHERE, TrainingResult, training_steps, training_text
from fa_registry.studies.training_plan import TrainingJob, finished_but
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.cleanup import close_abandoned
from fa_registry.tracking.lease import lease_owner
from fa_registry.tracking.reader import runs_by_spec
from fa_registry.tracking.run_state import HeartbeatMonitor, RunState
from fa_registry.training.code_fingerprint import runs_others_code
from fa_registry.training.devices import on_device
from fa_registry.training.specs import run_name

LOG = logging.getLogger(__name__)
PAUSE = 1.0  # seconds between two queries for the runs of other workers
REPORTED = 60.0  # seconds between two log lines that name the runs of other workers
Title = Callable[[int, int], str]


@dataclass
class Outcomes:
    """How the jobs of one call ended; every job is in exactly one field.

    Attributes:
        trained: results of the jobs that this call trained.
        elsewhere: finished runs that other workers trained meanwhile.
        failed: run name → event with the error.
        stopped: run name → reason, or "" if the run did not begin.
        left: names of the runs that other workers still train.
    """

    trained: list[TrainingResult] = field(default_factory=list)
    elsewhere: list[StoredRun] = field(default_factory=list)
    failed: dict[str, JobEvent] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


class Execution:
    """An open executor that trains jobs; see `opened_executor`.

    Attributes:
        outcomes: how the jobs have ended so far.
    """

    def __init__(self, executor: str, resources: JobResources, tracker: Tracker, title: Title, raises: bool):
        self._executor, self.resources, self._tracker, self._title = executor, resources, tracker, title
        self._raises = raises
        self.outcomes = Outcomes()

    def train(self, jobs: Sequence[TrainingJob], waits: bool = True) -> None:
        """Train all jobs, and train the jobs that other workers give up.

        Args:
            jobs: jobs of one study, or one job.
            waits: whether to wait for the specifications that other workers train.
        """
        heartbeats, other_jobs = HeartbeatMonitor(), list[TrainingJob]()
        while jobs or other_jobs:
            other_jobs += self._run(jobs) if jobs else []
            if self.outcomes.stopped or not other_jobs:
                self.outcomes.left += [run_name(job.spec) for job in other_jobs]
                return
            try:
                jobs, other_jobs = self._wait(other_jobs, heartbeats, waits)
            except Interrupted as error:
                if not self._raises:
                    LOG.warning("%s", error)
                self.outcomes.stopped |= {run_name(job.spec): str(error) for job in other_jobs}
                return

    def _run(self, jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
        """Run all jobs once, and return the jobs that other workers are training."""
        other_jobs: list[TrainingJob] = []
        open_jobs = set(range(len(jobs)))
        names = [run_name(job.spec) for job in jobs]
        title = self._title(len(jobs), self.resources.at_once)
        with Progress(title, names, training_text) as progress, stop_on_signal() as stop:

            def receive(event: JobEvent) -> None:
                """Show the progress of a job, and record how the job ended."""
                if not self._raises or event.kind not in ("failed", "stopped"):  # the raised error reports these
                    progress.show(event)
                if event.kind in ENDS:
                    open_jobs.discard(event.index)
                if event.kind == "done" and event.value.status == ELSEWHERE:
                    other_jobs.append(jobs[event.index])
                elif event.kind == "done":
                    self.outcomes.trained.append(event.value)
                elif event.kind == "failed":
                    self.outcomes.failed[names[event.index]] = event
                elif event.kind == "stopped":
                    self.outcomes.stopped[names[event.index]] = event.value or ""

            executors.CATALOG.get(self._executor).run(jobs, training_steps, self.resources, stop, receive)
            for index in sorted(open_jobs):
                text = f"the executor {self._executor} returned without reporting how this run ended"
                receive(JobEvent(index, "failed", text))
        return other_jobs

    def _wait(
        self, others: list[TrainingJob], heartbeats: HeartbeatMonitor, waits: bool
    ) -> tuple[list[TrainingJob], list[TrainingJob]]:
        """Wait until a job of another worker ends or becomes free. Return the free jobs and the leased jobs."""
        jobs = {job.spec.identity: job for job in others}

        def finished(spec: RunSpec, attempts: Sequence[StoredRun]) -> StoredRun | None:
            job = jobs[spec.identity]
            return finished_but(job.known, job.watch)(spec, attempts)

        with stop_on_signal() as signal:
            stop, specs = StopTagPoller(self._tracker, others[0].study, signal), [job.spec for job in others]
            runs, free, leased = wait_for_others(self._tracker, specs, finished, heartbeats, stop, waits)
        self.outcomes.elsewhere += runs.values()
        self.outcomes.left += [] if waits else [run_name(spec) for spec in leased]
        return [jobs[spec.identity] for spec in free], [jobs[spec.identity] for spec in leased] if waits else []


@contextmanager
def opened_executor(
    executor: str,
    requested: JobResources,
    tracker: Tracker,
    jobs: Sequence[TrainingJob],
    title: Title,
    raises: bool = False,
) -> Iterator[Execution]:
    """Open an executor for jobs, all of which have the same device and number of threads.

    Args:
        executor: name of the executor; empty for `default_executor`.
        requested: resources of the user; `at_once` is 0 if the number of simultaneous runs depends on the machine or the cluster.
        title: function of the number of jobs, and of those at once: the text that is logged before jobs run.
        raises: whether the caller trains one run and raises its error, so that the error is not logged too.

    Raises:
        UsageError: the resources do not suffice for one job.
        StoreError: the executor's machines cannot use the store safely.
    """
    specs = [job.spec for job in jobs]
    name = executor or default_executor(specs, several=not raises)
    requested = replace(requested, device="cuda" if on_gpu(specs) else "cpu", threads=jobs[0].threads)
    with (
        executors.CATALOG.get(name).opened(requested) as capacity,
        on_device(jobs[0].device),  # if several jobs share a GPU, the GPU is released only after the last job
    ):
        check_reach(tracker.uri, capacity)
        at_once = requested.at_once or capacity.at_once or default_processes(specs)
        resources = replace(requested, at_once=min(at_once, capacity.at_once or at_once))
        yield Execution(name, resources, tracker, title, raises)


def default_executor(specs: Sequence[RunSpec], several: bool = False) -> str:
    """Return the name of the default executor for these runs.

    The executor `local` starts separate processes. It is used for several runs on a CPU, and for runs with third-party code,
    because this code could end its process. The executor `side_by_side` trains all other runs in this process. There, several
    runs can share a GPU, and a debugger can step into a single run.
    """
    if any(map(runs_others_code, specs)):
        return "local"
    return "local" if several and not on_gpu(specs) else "side_by_side"


def wait_for_others(
    tracker: Tracker,
    specs: Sequence[RunSpec],
    finished: Callable[[RunSpec, Sequence[StoredRun]], StoredRun | None],
    heartbeats: HeartbeatMonitor,
    stop: Callable[[], bool],
    waits: bool = True,
) -> tuple[dict[str, StoredRun], list[RunSpec], list[RunSpec]]:
    """Wait until other processes finish the specifications, or until some specifications become free.

    A specification becomes free if the process that trains it ends without finishing the run, or sends no heartbeat for the
    duration of its lease. The unfinished runs of a free specification are closed.

    Args:
        finished: Function that returns the finished run of a specification from all its runs, or None.
        stop: Function that returns True if this process must stop.
        waits: Whether to wait. If False, return the present state at once.

    Returns:
        The finished runs by specification identity, the free specifications, and the leased specifications.

    Raises:
        Interrupted: `stop` returned True.
        StoreError: Another machine writes to the same sqlite file.
    """
    last_report = 0.0
    while True:
        attempts = runs_by_spec(tracker, [spec.identity for spec in specs])
        finished_runs = {spec.identity: run for spec in specs if (run := finished(spec, attempts[spec.identity]))}
        unfinished = [spec.identity for spec in specs if spec.identity not in finished_runs]
        leased = {identity: run for identity in unfinished if (run := lease_owner(attempts[identity], heartbeats))}
        free = [spec for spec in specs if spec.identity not in finished_runs and spec.identity not in leased]
        if free or not leased or not waits:
            for spec in free:
                close_abandoned(tracker, tracker.search({schema.TAG_SPEC: spec.identity}), heartbeats)
            return finished_runs, free, [spec for spec in specs if spec.identity in leased]
        check_machines(tracker, leased.values(), heartbeats)
        if stop():
            raise Interrupted(
                f"stopped while other processes train {len(leased)} of the runs; to resume, repeat the command"
            )
        if time.monotonic() - last_report > REPORTED:
            LOG.info("%s", waiting_text(leased))
            last_report = time.monotonic()
        time.sleep(PAUSE)


def waiting_text(leased: Mapping[str, StoredRun]) -> str:
    hosts = ", ".join(sorted({RunState(run).host or "another machine" for run in leased.values()}))
    names = ", ".join(run.name for run in leased.values())
    return f"waiting for {len(leased)} run{'s' * (len(leased) > 1)} that other processes train on {hosts}: {names}"
