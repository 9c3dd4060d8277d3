"""Execution of jobs in batches, in processes that a cluster starts.

A batch is the set of jobs of one process. On a CPU a batch has one job; on a GPU a batch has all jobs that share the GPU
(docs/decisions/20). If a process is lost, each of its jobs loses one attempt, and no other job is affected. Local workers
(worker_processes.py) follow the same rule. An executor provides the access to processes as a subclass of RemoteProcess.
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
from collections.abc import Callable, Sequence
from typing import Any

from fa_registry.errors import UsageError
from fa_registry.studies.environment_versions import unequal, versions
from fa_registry.studies.executors.base import ENDS, EventSink, JobEvent, JobFunction, JobResources, StopCheck
from fa_registry.studies.executors.side_by_side import run_side_by_side
from fa_registry.studies.worker_processes import Message, packed, send_end, unpacked
from fa_registry.training.devices import pinned_threads

LOG = logging.getLogger(__name__)
BEGUN, UNEQUAL = "begun", "unequal"  # messages of a process that are not events of a job
BEGINS: Message = packed(JobEvent(0, BEGUN))
POLL_SECONDS = 0.2
MOST_TRIES = 10  # attempts to find a process for a job
PATIENCE = 60.0  # seconds between two log lines with the number of waiting batches


class ProcessLost(Exception):
    """Error: the process of a batch has ended or could not start."""


class RemoteProcess(ABC):
    """One batch in a process of another machine. The process may not have started yet."""

    @abstractmethod
    def reported(self) -> list[Message]:
        """Return the new messages of the process.

        Raises:
            ProcessLost: the process has ended and has no more messages.
        """

    @abstractmethod
    def ask_to_stop(self) -> None:
        """Request the jobs to end at their next safe point."""

    @abstractmethod
    def leave(self, more: bool) -> None:
        """Release the process after all its jobs have ended; end it unless `more` batches wait for it."""

    @abstractmethod
    def end(self) -> None:
        """End the process immediately."""


@dataclasses.dataclass
class _Batch:
    """Batch of jobs in one process.

    Attributes:
        open: index → data of the jobs that have not ended.
        `heard`: time of the last message of the process; None if the process has not begun.
        asked: whether a stop was requested.
    """

    placed: RemoteProcess
    open: dict[int, Any]
    heard: float | None = None
    asked: bool = False


class BatchScheduler:
    """Scheduler that runs jobs in batches, as described in Executor.run, and reports one end per job.

    The function `start_process` starts a process, which then calls `do_batch` with the given bytes.
    """

    def __init__(
        self,
        jobs: Sequence[Any],
        work: JobFunction,
        resources: JobResources,
        stop: StopCheck,
        report: EventSink,
        start_process: Callable[[bytes], RemoteProcess],
    ):
        self._waiting = deque(enumerate(jobs))
        self._work, self._resources, self._stop, self._tell, self._place = work, resources, stop, report, start_process
        self._processes = math.ceil(resources.at_once / resources.in_turns)
        self._batches: list[_Batch] = []
        self._deaths: dict[int, str] = {}  # index of a job whose first process was lost → how that process ended
        self._unbegun: Counter[int] = Counter()  # index of a job → processes that were lost before they began
        self._said = time.monotonic()

    def run(self) -> None:
        """Run until all jobs have ended; end all processes if `report` raises."""
        try:
            while self._waiting or self._batches:
                if self._stop():
                    self._drop_what_waits()
                while self._waiting and len(self._batches) < self._processes:
                    self._begin()
                time.sleep(POLL_SECONDS)
                for batch in list(self._batches):
                    self._attend(batch)
                self._say_who_waits()
        finally:
            for batch in self._batches:
                batch.placed.end()

    def _drop_what_waits(self) -> None:
        while self._waiting:
            self._tell(JobEvent(self._waiting.popleft()[0], "stopped"))
        for batch in list(self._batches):
            if batch.heard is None:  # the batch may wait forever for a process
                self._batches.remove(batch)
                batch.placed.end()
                for index in batch.open:
                    self._tell(JobEvent(index, "stopped"))
            elif not batch.asked:
                batch.asked = True
                batch.placed.ask_to_stop()

    def _begin(self) -> None:
        """Start a batch with at most an equal share of the waiting jobs, because other GPUs may be free."""
        share = math.ceil(len(self._waiting) / (self._processes - len(self._batches)))
        size = min(share, self._resources.in_turns, self._resources.at_once, len(self._waiting))
        jobs = dict(self._waiting.popleft() for _ in range(size))
        try:
            packed_jobs = pickle.dumps((self._work, list(jobs.values())))
        except Exception:
            for index in jobs:
                self._tell(JobEvent(index, "failed", traceback.format_exc()))
            return
        message = pickle.dumps((versions(), self._resources.threads, list(jobs), packed_jobs))
        self._batches.append(_Batch(self._place(message), jobs))

    def _attend(self, batch: _Batch) -> None:
        """Process the messages of a batch, and handle the loss of its process."""
        try:
            messages = batch.placed.reported()
        except ProcessLost as lost:
            self._batches.remove(batch)
            batch.placed.end()
            for index, job in batch.open.items():
                self._count_death(index, job, str(lost), begun=batch.heard is not None)
            return
        batch.heard = time.monotonic() if messages else batch.heard
        for message in messages:
            self._receive(batch, unpacked(message))
        silent_seconds = 0.0 if batch.heard is None else time.monotonic() - batch.heard
        if not batch.open:
            self._batches.remove(batch)
            batch.placed.leave(bool(self._waiting))
        elif self._resources.silence and silent_seconds > self._resources.silence:
            self._batches.remove(batch)
            batch.placed.end()
            reason = f"its process sent no heartbeat for {silent_seconds:.0f} s and was ended"
            for index in batch.open:
                self._tell(JobEvent(index, "failed", reason, lost=True))

    def _receive(self, batch: _Batch, event: JobEvent | None) -> None:
        if event is None or event.kind == BEGUN:
            return
        if event.kind == UNEQUAL:
            raise UsageError(event.value)
        if event.index not in batch.open:  # the end event could not be read, so the job counts as failed
            return
        if event.kind in ENDS:
            job = batch.open.pop(event.index)
            # stopped by the cluster at the time limit, or because other users need the machine
            if event.kind == "stopped" and not self._stop():
                self._count_death(event.index, job, f"was stopped by its machine ({event.value})", begun=True)
                return
        self._tell(event)

    def _count_death(self, index: int, job: Any, cause: str, begun: bool) -> None:
        """Restart a job whose process was lost, or report that the job failed.

        A job whose process had not begun gets more attempts, because the cluster may have chosen a dead machine.
        """
        self._unbegun[index] += not begun
        if not begun and self._unbegun[index] < MOST_TRIES:
            self._waiting.appendleft((index, job))
        elif index in self._deaths:
            reason = f"its process {self._deaths[index]}; after the restart, the new process {cause}"
            self._tell(JobEvent(index, "failed", reason, lost=True))
        else:
            self._deaths[index] = cause
            self._tell(JobEvent(index, "again", f"its process {cause}; the job restarts in another process"))
            self._waiting.appendleft((index, job))

    def _say_who_waits(self) -> None:
        waiting = sum(batch.heard is None for batch in self._batches)
        if waiting and time.monotonic() - self._said > PATIENCE:
            self._said = time.monotonic()
            LOG.info("%d of %d processes wait for free capacity on the shared cluster", waiting, len(self._batches))


# Functions in the process of the batch.


def do_batch(message: bytes, stop: StopCheck, send: Callable[[Message], None]) -> None:
    """Run the jobs of a batch, pickled by the scheduler, in turns, and send their events.

    The process of the batch calls this function after it has sent the message BEGINS.
    """
    expected_versions, threads, indices, packed_jobs = pickle.loads(message)
    if text := unequal(expected_versions, versions(), platform.node()):
        send(packed(JobEvent(0, UNEQUAL, text)))
        return

    def report(event: JobEvent) -> None:
        study_event = dataclasses.replace(event, index=indices[event.index])
        if event.kind in ENDS:
            send_end(send, study_event)
        else:
            send(packed(study_event))

    try:
        work, jobs = pickle.loads(packed_jobs)
    except Exception:  # for example, a package is not installed on this machine
        for index in range(len(indices)):
            report(JobEvent(index, "failed", traceback.format_exc()))
        return
    with pinned_threads(threads):
        run_side_by_side(jobs, work, len(jobs), stop, report)
