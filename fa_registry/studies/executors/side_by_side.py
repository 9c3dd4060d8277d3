"""Executor that runs several jobs in turns in this process, on one GPU.

A job is a generator that yields after it has submitted work to the GPU. One thread runs all jobs. Therefore the results of a job do
not depend on the other jobs, and two captures of a CUDA graph never overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
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
    report_progress,
)
from fa_registry.training.devices import pinned_threads

AT_WORK = object()


class SideBySide(Executor):
    """Executor that runs `at_once` jobs in turns in this process."""

    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, report: EventSink
    ) -> None:
        with pinned_threads(resources.threads):
            run_side_by_side(jobs, work, resources.at_once, stop, report)


def run_side_by_side(jobs: Sequence[Any], work: JobFunction, count: int, stop: StopCheck, send: EventSink) -> None:
    """Call `work(job, stop, report)` for every job, with at most `count` jobs in turns; see Executor.run."""
    waiting = deque(enumerate(jobs))
    at_work: dict[int, Generator[None, None, Any]] = {}
    try:
        while waiting or at_work:
            while waiting and len(at_work) < count:
                index, job = waiting.popleft()
                if stop():
                    send(JobEvent(index, "stopped"))
                else:
                    at_work[index] = work(job, stop, partial(report_progress, send, index))
            for index in list(at_work):
                event = ended(index, partial(_step, at_work[index]))
                if event.value is not AT_WORK:
                    del at_work[index]
                    send(event)
    finally:
        for unfinished in at_work.values():  # after an immediate interrupt, each job records the interrupt
            unfinished.close()


def _step(steps: Generator[None, None, Any]) -> Any:
    """Advance a job to its next yield; return its result, or AT_WORK if it continues."""
    try:
        next(steps)
    except StopIteration as finished:
        return finished.value
    return AT_WORK


PLUGIN = SideBySide()
