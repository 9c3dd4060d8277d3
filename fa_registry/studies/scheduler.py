"""The scheduler of all executors, which runs jobs in processes.

The processes are of this machine or of a cluster. The scheduler reports one end for each job.

A process runs a batch of jobs in turns and then ends. On a CPU, a batch has one job; on a GPU, it has all jobs that share the GPU
(docs/decisions/20). A process may end unexpectedly: a method calls `os._exit`, a segmentation fault occurs, the kernel kills the
process because the memory is full, or a machine of the cluster is lost. Each of its jobs then restarts once, alone in a new
process, and no other job is affected. An executor provides its kind of process as a subclass of Process.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import pickle
import platform
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from fa_registry.errors import UsageError
from fa_registry.studies.environment_versions import unequal, versions
from fa_registry.studies.executors.base import ENDS, EventSink, JobEvent, JobFunction, JobResources, StopCheck

LOG = logging.getLogger(__name__)
Message = tuple[int, str, bytes, int]  # index, kind, pickled value and exit code of an event
LOGGED = "logged"  # kind of a message that contains a log line instead of an event
BEGUN, UNEQUAL = "begun", "unequal"  # messages of a process that are not events of a job
POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0  # time in which an interrupted process records the end of its run and exits
MAX_ATTEMPTS = 10  # attempts to find a process for a job
SECONDS_BETWEEN_LOGS = 60.0  # seconds between two log lines with the number of waiting batches
NO_ROOM = "cannot start another process (%s); the jobs continue, %d at a time"


class ProcessLost(Exception):
    """Error: the process of a batch has ended or could not start.

    Attributes:
        is_unknown: whether the cause may be outside the jobs, so their result is unknown: the process was killed, or its machine
            was lost.
    """

    def __init__(self, reason: str, is_unknown: bool = True):
        super().__init__(reason)
        self.is_unknown = is_unknown


class Process(ABC):
    """One process that runs one batch, which it received as bytes, by a call of `do_batch`.

    Attributes:
        is_shared: whether the process belongs to a cluster. Such a process may wait for a machine, and its machine may stop it.
    """

    is_shared = True

    @abstractmethod
    def reported(self) -> list[Message]:
        """Return the new messages of the process.

        Raises:
            ProcessLost: the process has ended and has no more messages.
        """

    @abstractmethod
    def ask_to_stop(self) -> None:
        """Request the jobs to end at their next safe point."""

    def interrupt(self) -> None:  # noqa: B027  no cluster can do this
        """Raise KeyboardInterrupt in the job that runs, if the process is of a kind that can do this."""

    def has_ended(self) -> bool:
        """Whether the process needs no more time to end after all its jobs have ended."""
        return True

    @abstractmethod
    def end(self, seconds: float = 0.0) -> None:
        """End the process, and remove what it left; wait at most `seconds` until it exits by itself."""


@dataclasses.dataclass
class _Batch:
    """Batch of jobs in one process.

    Attributes:
        open: index → data of the jobs that have not ended.
        last_message: time of the last message of the process; None if the process has not begun.
        asked: whether a stop was requested.
    """

    process: Process
    open: dict[int, Any]
    last_message: float | None = None
    asked: bool = False


class Scheduler:
    """Scheduler that runs jobs in batches, as described in Executor.run, and reports one end for each job.

    Args:
        start_process: function that starts a process, which calls `do_batch` with the given bytes.
        pause: function that waits a moment for a message of the given processes.
        same_code: whether the processes have the code of this process, so no versions are compared. Its files may have changed.
    """

    def __init__(
        self,
        jobs: Sequence[Any],
        work: JobFunction,
        resources: JobResources,
        stop: StopCheck,
        report: EventSink,
        start_process: Callable[[bytes], Process],
        pause: Callable[[Sequence[Process]], None] = lambda processes: time.sleep(POLL_SECONDS),
        same_code: bool = False,
    ):
        self._waiting = deque(enumerate(jobs))
        self._work, self._resources, self._stop, self._report = work, resources, stop, report
        self._start, self._pause = start_process, pause
        self._versions = {} if same_code else versions()
        self._processes = math.ceil(resources.at_once / resources.in_turns)
        self._batches: list[_Batch] = []
        self._leaving: list[tuple[Process, float]] = []  # processes without a job → time at which they are ended
        self._losses: dict[int, str] = {}  # index of a job whose first process was lost → how that process ended
        self._lost_unbegun: Counter[int] = Counter()  # index of a job → processes that were lost before they began
        self._last_log = time.monotonic()

    def run(self) -> None:
        """Run until all jobs have ended and all processes have exited; end all processes if `report` raises."""
        try:
            while self._waiting or self._batches or self._leaving:
                if self._stop():
                    self._drop_waiting_jobs()
                while self._waiting and self._running < self._processes and self._begin():
                    pass
                self._pause([batch.process for batch in self._batches])
                for batch in list(self._batches):
                    self._attend(batch)
                self._end_leaving_processes()
                self._log_waiting_batches()
        finally:
            self._end_all()

    @property
    def _running(self) -> int:
        return len(self._batches) + len(self._leaving)

    def _drop_waiting_jobs(self) -> None:
        while self._waiting:
            self._report(JobEvent(self._waiting.popleft()[0], "stopped"))
        for batch in list(self._batches):
            if batch.last_message is None:  # the batch may wait forever for a process
                self._batches.remove(batch)
                batch.process.end()
                for index in batch.open:
                    self._report(JobEvent(index, "stopped"))
            elif not batch.asked:
                batch.asked = True
                batch.process.ask_to_stop()

    def _begin(self) -> bool:
        """Start a process for the next jobs; return False if no process can be started.

        If other processes run, the jobs then wait for their end, and lose no attempt.
        """
        jobs = self._next_jobs()
        try:
            message = packed_batch(self._versions, self._work, self._resources.threads, jobs)
        except Exception:
            for index in jobs:
                self._report(JobEvent(index, "failed", traceback.format_exc()))
            return True
        try:
            process = self._start(message)
        except (EOFError, OSError) as error:
            text = f"{type(error).__name__}: {error}"
            if self._running:
                self._waiting.extendleft(reversed(jobs.items()))
                self._processes = self._running
                LOG.warning(NO_ROOM, text, self._processes)
            else:
                self._count_losses(jobs, ProcessLost(f"did not begin ({text})"), begun=True)
            return False
        self._batches.append(_Batch(process, jobs, None if process.is_shared else time.monotonic()))
        return True

    def _next_jobs(self) -> dict[int, Any]:
        """Remove the jobs of the next batch from the queue.

        A batch has at most an equal share of the waiting jobs, because other GPUs may be free. A job whose process was lost is
        alone: if it is the cause, no other job loses an attempt.
        """
        share = math.ceil(len(self._waiting) / (self._processes - self._running))
        size = min(share, self._resources.in_turns, self._resources.at_once)
        jobs: dict[int, Any] = {}
        while self._waiting and len(jobs) < size:
            is_alone = self._waiting[0][0] in self._losses
            if is_alone and jobs:
                break
            index, job = self._waiting.popleft()
            jobs[index] = job
            if is_alone:
                break
        return jobs

    def _attend(self, batch: _Batch) -> None:
        """Process the messages of a batch, and handle the loss of its process."""
        silent_seconds = 0.0 if batch.last_message is None else time.monotonic() - batch.last_message
        try:
            messages = batch.process.reported()
        except ProcessLost as lost:
            self._batches.remove(batch)
            batch.process.end()
            self._count_losses(batch.open, lost, begun=batch.last_message is not None)
            return
        batch.last_message = time.monotonic() if messages else batch.last_message
        for message in messages:
            self._receive(batch, unpacked(message))
        if not batch.open:
            self._batches.remove(batch)
            self._leaving.append((batch.process, time.monotonic() + GRACE_SECONDS))
        elif not messages and self._resources.silence and silent_seconds > self._resources.silence:
            self._batches.remove(batch)
            batch.process.interrupt()
            batch.process.end(GRACE_SECONDS)
            reason = f"its process sent no heartbeat for {silent_seconds:.0f} s and was ended"
            for index in batch.open:
                self._report(JobEvent(index, "failed", reason, lost=True))

    def _receive(self, batch: _Batch, event: JobEvent | None) -> None:
        if event is None or event.kind == BEGUN:
            return
        if event.kind == UNEQUAL:
            raise UsageError(event.value)
        if event.index not in batch.open:  # a progress report could not be read, so the job counts as failed
            return
        if event.kind in ENDS:
            job = batch.open.pop(event.index)
            # stopped by the cluster at the time limit, or because other users need the machine
            if event.kind == "stopped" and batch.process.is_shared and not self._stop():
                lost = ProcessLost(f"was stopped by its machine ({event.value})")
                self._count_losses({event.index: job}, lost, begun=True)
                return
        self._report(event)

    def _count_losses(self, jobs: Mapping[int, Any], lost: ProcessLost, begun: bool) -> None:
        """Restart the jobs of a lost process, or report that they failed.

        A job whose process had not begun gets more attempts, because the cluster may have chosen a dead machine.
        """
        for index, job in reversed(list(jobs.items())):
            self._lost_unbegun[index] += not begun
            if not begun and self._lost_unbegun[index] < MAX_ATTEMPTS:
                self._waiting.appendleft((index, job))
            elif index in self._losses:
                reason = f"its process {self._losses[index]}; after the restart, the new process {lost}"
                self._report(JobEvent(index, "failed", reason, lost.is_unknown))
            else:
                self._losses[index] = str(lost)
                self._report(JobEvent(index, "again", f"its process {lost}; the job restarts in a new process"))
                self._waiting.appendleft((index, job))

    def _end_leaving_processes(self) -> None:
        """Remove processes that have exited, and end those that a thread of a job keeps alive."""
        for leaving in list(self._leaving):
            process, deadline = leaving
            if process.has_ended() or time.monotonic() > deadline:
                self._leaving.remove(leaving)
                process.end()

    def _end_all(self) -> None:
        """End all processes, even if the user presses Ctrl-C again."""
        processes = [*(batch.process for batch in self._batches), *(process for process, _ in self._leaving)]
        for process in processes:
            process.interrupt()
        deadline = time.monotonic() + GRACE_SECONDS
        try:
            for process in processes:
                process.end(max(0.0, deadline - time.monotonic()))
        finally:
            for process in processes:
                process.end()

    def _log_waiting_batches(self) -> None:
        waiting = sum(batch.last_message is None for batch in self._batches)
        if waiting and time.monotonic() - self._last_log > SECONDS_BETWEEN_LOGS:
            self._last_log = time.monotonic()
            LOG.info("%d of %d processes wait for free capacity on the shared cluster", waiting, len(self._batches))


# Messages from a process that runs jobs to the scheduler.


def packed_batch(expected: Mapping[str, str], work: JobFunction, threads: int, jobs: Mapping[int, Any]) -> bytes:
    """Convert a batch to bytes.

    Only the jobs are pickled a second time: they can be read only where their packages are installed.
    """
    return pickle.dumps((expected, threads, list(jobs), pickle.dumps((work, list(jobs.values())))))


def packed(event: JobEvent) -> Message:
    """Convert an event to a message that contains its value in pickled form."""
    return event.index, event.kind, pickle.dumps(event.value), event.refused


BEGINS: Message = packed(JobEvent(0, BEGUN))


def unpacked(message: Message) -> JobEvent | None:
    """Return the event that a message contains.

    If this process cannot unpickle the value of the event, the event reports the job as failed. A log line is logged, and the
    result is None.
    """
    index, kind, value, exit_code = message
    try:
        unpickled = pickle.loads(value)
    except Exception:
        return JobEvent(index, "failed", traceback.format_exc())
    if kind != LOGGED:
        return JobEvent(index, kind, unpickled, refused=exit_code)
    name, level, text = unpickled
    logging.getLogger(name).log(level, "%s", text)
    return None


class _Relay(logging.Handler):
    def __init__(self, send: Callable[[Message], None]):
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._send((0, LOGGED, pickle.dumps((record.name, record.levelno, record.getMessage())), 0))


def log_to(send: Callable[[Message], None]) -> None:
    """Send log messages of fa_registry to another process instead of printing them."""
    log = logging.getLogger("fa_registry")
    log.addHandler(_Relay(send))
    log.setLevel(logging.INFO)
    log.propagate = False


# Functions in the process of the batch.


def do_batch(message: bytes, stop: StopCheck, send: Callable[[Message], None]) -> None:
    """Run the jobs of a batch in turns, and send their events.

    The process of the batch calls this function after it has sent the message BEGINS.
    """
    expected_versions, threads, indices, packed_jobs = pickle.loads(message)
    if expected_versions and (text := unequal(expected_versions, versions(), platform.node())):
        send(packed(JobEvent(0, UNEQUAL, text)))
        return

    def report(event: JobEvent) -> None:
        """Send an event under the index that the job has in the study."""
        study_event = dataclasses.replace(event, index=indices[event.index])
        try:
            body = packed(study_event)
        except Exception:
            if event.kind not in ENDS:
                raise  # in the job that reports it
            body = packed(JobEvent(study_event.index, "failed", traceback.format_exc()))
        send(body)

    try:
        work, jobs = pickle.loads(packed_jobs)
    except Exception:  # for example, a package is not installed on this machine
        for index in range(len(indices)):
            report(JobEvent(index, "failed", traceback.format_exc()))
        return
    from fa_registry.studies.executors.side_by_side import run_side_by_side

    with _pinned(threads):
        run_side_by_side(jobs, work, len(jobs), stop, report)


def _pinned(threads: int) -> Any:
    if not threads:
        return nullcontext()
    from fa_registry.training.devices import pinned_threads  # late, because this module imports torch

    return pinned_threads(threads)
