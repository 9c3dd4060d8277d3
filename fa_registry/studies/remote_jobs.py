"""Jobs in processes of a cluster, which another program starts: in batches, as many at a time as there is room for.

A batch is what one process takes together: one job on a CPU, on a card all that share it (docs/decisions/0028). As with workers of
this machine (workers.py), a process that is lost costs its jobs one attempt, and the others nothing. How processes are reached is
an executor's business: `Placed`.
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
BEGUN, UNEQUAL = "begun", "unequal"  # what a process tells that is no event of a job
BEGINS: Message = packed(JobEvent(0, BEGUN))
POLL_SECONDS = 0.2
MOST_TRIES = 10  # to find a process for a job
PATIENCE = 60.0  # between two lines that say how many batches wait for room


class ProcessLost(Exception):
    """The process of a batch is gone, or will never be; says how it ended."""


class RemoteProcess(ABC):
    """One batch in a process elsewhere, or waiting for one."""

    @abstractmethod
    def reported(self) -> list[Message]:
        """What its process has sent since. Raises Lost when that is gone and has nothing more to tell."""

    @abstractmethod
    def ask_to_stop(self) -> None:
        """Have its jobs end at their next safe point."""

    @abstractmethod
    def leave(self, more: bool) -> None:
        """All its jobs have ended. more: batches wait of which its process may take the next; else it goes, and makes room."""

    @abstractmethod
    def end(self) -> None:
        """End its process, whatever it is doing."""


def run_in_batches(
    jobs: Sequence[Any],
    work: JobFunction,
    resources: JobResources,
    stop: StopCheck,
    report: EventSink,
    place: Callable[[bytes], RemoteProcess],
) -> None:
    """As Executor.run. place: has a process call `do_batch` with these bytes, as soon as there is room for one."""
    _Batches(jobs, work, resources, stop, report, place).run()


@dataclasses.dataclass
class _Batch:
    """open: the jobs of it that have not ended, by index. heard: when its process last told something, None: not begun.

    asked: to stop.
    """

    placed: RemoteProcess
    open: dict[int, Any]
    heard: float | None = None
    asked: bool = False


class _Batches:
    """Places what waits, hears those at work, and says of every job how it ended."""

    def __init__(
        self,
        jobs: Sequence[Any],
        work: JobFunction,
        resources: JobResources,
        stop: StopCheck,
        report: EventSink,
        place: Callable[[bytes], RemoteProcess],
    ):
        self._waiting = deque(enumerate(jobs))
        self._work, self._resources, self._stop, self._tell, self._place = work, resources, stop, report, place
        self._processes = math.ceil(resources.at_once / resources.in_turns)
        self._batches: list[_Batch] = []
        self._deaths: dict[int, str] = {}  # of a job whose first process was lost: how that one ended
        self._unbegun: Counter[int] = Counter()  # how often a process of a job was lost before it had begun
        self._said = time.monotonic()

    def run(self) -> None:
        """Until nothing waits and nobody is at work; what `tell` raises ends them all."""
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
            if batch.heard is None:  # it may wait for room for ever
                self._batches.remove(batch)
                batch.placed.end()
                for index in batch.open:
                    self._tell(JobEvent(index, "stopped"))
            elif not batch.asked:
                batch.asked = True
                batch.placed.ask_to_stop()

    def _begin(self) -> None:
        """Place a batch of what waits: no more than its share, so that no card is idle beside a full one."""
        share = math.ceil(len(self._waiting) / (self._processes - len(self._batches)))
        size = min(share, self._resources.in_turns, self._resources.at_once, len(self._waiting))
        jobs = dict(self._waiting.popleft() for _ in range(size))
        try:
            given = pickle.dumps((self._work, list(jobs.values())))
        except Exception:
            for index in jobs:
                self._tell(JobEvent(index, "failed", traceback.format_exc()))
            return
        message = pickle.dumps((versions(), self._resources.threads, list(jobs), given))
        self._batches.append(_Batch(self._place(message), jobs))

    def _attend(self, batch: _Batch) -> None:
        """Tell what its process has told; where that is lost, or silent for too long, see to its jobs."""
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
        silent = 0.0 if batch.heard is None else time.monotonic() - batch.heard
        if not batch.open:
            self._batches.remove(batch)
            batch.placed.leave(bool(self._waiting))
        elif self._resources.silence and silent > self._resources.silence:
            self._batches.remove(batch)
            batch.placed.end()
            why = f"its process gave no sign of life for {silent:.0f} s and was ended"
            for index in batch.open:
                self._tell(JobEvent(index, "failed", why, lost=True))

    def _receive(self, batch: _Batch, event: JobEvent | None) -> None:
        if event is None or event.kind == BEGUN:
            return
        if event.kind == UNEQUAL:
            raise UsageError(event.value)
        if event.index not in batch.open:  # its end could not be read, and more of it comes
            return
        if event.kind in ENDS:
            job = batch.open.pop(event.index)
            if event.kind == "stopped" and not self._stop():  # by the machine: its time is up, or others need it
                self._count_death(event.index, job, f"was told to end where it was ({event.value})", begun=True)
                return
        self._tell(event)

    def _count_death(self, index: int, job: Any, how: str, begun: bool) -> None:
        """Have the job begin again, or say that it failed.

        begun: else its process never was: a machine that has just died is chosen once more until the cluster knows.
        """
        self._unbegun[index] += not begun
        if not begun and self._unbegun[index] < MOST_TRIES:
            self._waiting.appendleft((index, job))
        elif index in self._deaths:
            why = f"its process {self._deaths[index]}; begun again, it {how}"
            self._tell(JobEvent(index, "failed", why, lost=True))
        else:
            self._deaths[index] = how
            self._tell(JobEvent(index, "again", f"its process {how}; it begins again in another"))
            self._waiting.appendleft((index, job))

    def _say_who_waits(self) -> None:
        waiting = sum(batch.heard is None for batch in self._batches)
        if waiting and time.monotonic() - self._said > PATIENCE:
            self._said = time.monotonic()
            LOG.info("%d of %d processes wait for room on the cluster, which others use", waiting, len(self._batches))


# In the process.


def do_batch(message: bytes, stop: StopCheck, send: Callable[[Message], None]) -> None:
    """Do the jobs that `_Batches` wrote down, in turns, and send what they tell, each under its own index.

    Whoever calls it has sent BEGINS.
    """
    asked, threads, indices, given = pickle.loads(message)
    if text := unequal(asked, versions(), platform.node()):
        send(packed(JobEvent(0, UNEQUAL, text)))
        return

    def report(event: JobEvent) -> None:
        own = dataclasses.replace(event, index=indices[event.index])
        if event.kind in ENDS:
            send_end(send, own)
        else:
            send(packed(own))

    try:
        work, jobs = pickle.loads(given)
    except Exception:  # of a package that is not installed here
        for place in range(len(indices)):
            report(JobEvent(place, "failed", traceback.format_exc()))
        return
    with pinned_threads(threads):
        run_side_by_side(jobs, work, len(jobs), stop, report)
