"""Local executor: each job in a process of this machine, so that a method that ends its process costs its own run alone.

A stop request (Ctrl-C) lets every running job end at its next safe point; jobs that have not begun are dropped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from fa_registry.studies.worker_processes import Task, supervise
from fa_registry.training.devices import pinned_threads
from fa_registry.training.loop import run_to_completion


class Local(Executor):
    """Jobs in `at_once` processes, in one too where it is one; a job pins its own CPU threads."""

    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, tell: EventSink
    ) -> None:
        task = partial(_whole, work, resources.threads)
        supervise(jobs, task, resources.at_once, stop, tell, resources.silence)


def _whole(work: JobFunction, threads: int, job: Any, stop: StopCheck, report: Callable[[Any], None]) -> Any:
    with pinned_threads(threads):
        return run_to_completion(work(job, stop, report))


def run_jobs(jobs: Sequence[Any], task: Task, processes: int, stop: StopCheck, tell: EventSink) -> None:
    """Call task(job, stop, report) for every job; `tell` hears every event, here. `task` can be pickled.

    With one process it is this one, for work that nobody else's code can end.
    """
    if processes > 1 and len(jobs) > 1:
        supervise(jobs, task, processes, stop, tell)
        return
    for index, job in enumerate(jobs):
        report = partial(_report, tell, index)
        tell(JobEvent(index, "stopped") if stop() else ended(index, partial(task, job, stop, report)))


def _report(tell: EventSink, index: int, value: Any) -> None:
    tell(JobEvent(index, "progress", value))


@contextmanager
def stop_on_signal(numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[Callable[[], bool]]:
    """Inside, the first SIGINT or SIGTERM is a request to stop (yielded as a function); the second SIGINT interrupts at once.

    A SIGTERM is meant for the whole program: what handles it outside hears of it when the block has ended. Outside the main
    thread, where Python lets nobody hear signals, nothing is requested. numbers: of the signals that request.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    requested: list[int] = []
    usual = {number: signal.getsignal(number) for number in numbers}

    def request(number: int, frame: Any) -> None:
        requested.append(number)
        signal.signal(signal.SIGINT, usual[signal.SIGINT])

    for number in usual:
        signal.signal(number, request)
    try:
        yield lambda: bool(requested)
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        if signal.SIGTERM in requested and callable(usual[signal.SIGTERM]):
            signal.raise_signal(signal.SIGTERM)


PLUGIN = Local()
