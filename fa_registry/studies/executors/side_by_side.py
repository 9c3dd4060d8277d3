"""Executor that runs several jobs in turns in this process, so that one card works for all of them.

A job is a generator that yields when it has given work to the card. One thread runs all jobs: a job's numbers cannot depend on the
jobs next to it, and two captures of a CUDA graph never overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from fa_registry.studies.executors.base import (
    EventSink,
    Executor,
    JobEvent,
    JobFunction,
    JobResources,
    StopCheck,
    ended,
)
from fa_registry.training.devices import pinned_threads

AT_WORK = object()


class SideBySide(Executor):
    """`at_once` jobs in turns, all in this process and with its number of CPU threads."""

    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, tell: EventSink
    ) -> None:
        with pinned_threads(resources.threads):
            run_side_by_side(jobs, work, resources.at_once, stop, tell)


def run_side_by_side(jobs: Sequence[Any], work: JobFunction, count: int, stop: StopCheck, tell: EventSink) -> None:
    """Run work(job, stop, report) for every job, `count` at a time in turns; `tell` receives every event."""
    waiting = deque(enumerate(jobs))
    at_work: dict[int, Generator[None, None, Any]] = {}
    try:
        while waiting or at_work:
            while waiting and len(at_work) < count:
                index, job = waiting.popleft()
                if stop():
                    tell(JobEvent(index, "stopped"))
                else:
                    at_work[index] = work(job, stop, _reporter(index, tell))
            for index in list(at_work):
                event = ended(index, partial(_step, at_work[index]))
                if event.value is not AT_WORK:
                    del at_work[index]
                    tell(event)
    finally:
        for unfinished in at_work.values():  # after an immediate interrupt: each job records it
            unfinished.close()


def _reporter(index: int, tell: Callable[[JobEvent], None]) -> Callable[[Any], None]:
    return lambda value: tell(JobEvent(index, "progress", value))


def _step(steps: Generator[None, None, Any]) -> Any:
    """Advance the job to its next yield; return its result, or AT_WORK if it has not ended."""
    try:
        next(steps)
    except StopIteration as finished:
        return finished.value
    return AT_WORK


PLUGIN = SideBySide()
