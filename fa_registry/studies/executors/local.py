"""Local executor: runs each job in a separate process of this machine.

If the code of a method terminates its process, only one run is affected. After a stop request (Ctrl-C), running jobs end at their
next safe point, and other jobs do not begin.
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
    report_progress,
)
from fa_registry.studies.worker_processes import Task, supervise


class Local(Executor):
    """Executor with `at_once` local processes; each job sets its own number of CPU threads."""

    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, tell: EventSink
    ) -> None:
        task = partial(_whole, work, resources.threads)
        supervise(jobs, task, resources.at_once, stop, tell, resources.silence)


def _whole(work: JobFunction, threads: int, job: Any, stop: StopCheck, report: Callable[[Any], None]) -> Any:
    from fa_registry.training.devices import pinned_threads  # late, because these modules import torch
    from fa_registry.training.loop import run_to_completion

    with pinned_threads(threads):
        return run_to_completion(work(job, stop, report))


def run_jobs(jobs: Sequence[Any], task: Task, processes: int, stop: StopCheck, send: EventSink) -> None:
    """Call `task(job, stop, report)` for every job, in several processes if possible.

    If `processes` is 1, or if there is only one job, the jobs run in this process. Therefore do not use this function for jobs
    whose code may end the process.

    Args:
        task: function that runs one job, picklable.
        processes: maximum number of processes.
        `send`: function that receives every event in this process.
    """
    if processes > 1 and len(jobs) > 1:
        supervise(jobs, task, processes, stop, send)
        return
    for index, job in enumerate(jobs):
        report = partial(report_progress, send, index)
        send(JobEvent(index, "stopped") if stop() else ended(index, partial(task, job, stop, report)))


@contextmanager
def stop_on_signal(numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[Callable[[], bool]]:
    """Treat the first SIGINT or SIGTERM within the context as a request to stop.

    Yield a function that returns whether a stop was requested. A second SIGINT interrupts at once. After a SIGTERM, the
    previous signal handler is called at the end of the context. Outside the main thread Python delivers no signals, so no stop
    is requested.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    requested: list[int] = []
    previous_handlers = {number: signal.getsignal(number) for number in numbers}

    def request(number: int, frame: Any) -> None:
        requested.append(number)
        signal.signal(signal.SIGINT, previous_handlers[signal.SIGINT])

    for number in previous_handlers:
        signal.signal(number, request)
    try:
        yield lambda: bool(requested)
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        if signal.SIGTERM in requested and callable(previous_handlers[signal.SIGTERM]):
            signal.raise_signal(signal.SIGTERM)


PLUGIN = Local()
