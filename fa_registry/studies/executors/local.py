"""Local executor: runs each job in a separate process of this machine.

If the code of a method terminates its process, only one run is affected. After a stop request (Ctrl-C), running jobs end at their
next safe point, and other jobs do not begin.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
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
from fa_registry.studies.local_process import LocalProcess, pause
from fa_registry.studies.scheduler import Scheduler

MOST_IN_TURNS = 8  # jobs of `run_jobs` in one process
SHARES = 4  # batches per process of `run_jobs`, so that no process waits long for the last one
Task = Callable[[Any, StopCheck, Callable[[Any], None]], Any]


class Local(Executor):
    """Executor with `at_once` local processes; each process runs one job."""

    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, report: EventSink
    ) -> None:
        own_process = JobResources(resources.at_once, threads=resources.threads, silence=resources.silence)
        Scheduler(jobs, work, own_process, stop, report, LocalProcess, pause, same_code=True).run()


def supervise(
    jobs: Sequence[Any],
    task: Task,
    processes: int,
    stop: StopCheck,
    report: EventSink,
    silence: float = 0.0,
    in_turns: int = 1,
) -> None:
    """Call `task(job, stop, report)` for every job in processes of this machine.

    Args:
        jobs: data of each job, picklable.
        task: function that runs one job, picklable.
        processes: maximum number of simultaneous processes.
        stop: function that returns whether a stop was requested. After a request, jobs end at their next safe point.
        report: function that receives every event in this process. If the function raises an exception, all processes are ended,
            and the exception is raised.
        silence: seconds without a message after which the process of a job is ended; 0 means never.
        in_turns: number of jobs that one process runs one after another.
    """
    resources = JobResources(processes * in_turns, threads=0, silence=silence, jobs_per_process=in_turns)
    Scheduler(jobs, partial(in_one_step, task), resources, stop, report, LocalProcess, pause, same_code=True).run()


def in_one_step(task: Task, *arguments: Any) -> Generator[None, None, Any]:
    """Convert a task to a generator, because executors expect generators."""
    return task(*arguments)
    yield


def run_in_subprocess(call: Callable[[], Any], seconds: float = 0.0) -> JobEvent:
    """Call a function in a separate process and return an event with its result.

    Use this for code that may end its process.

    Args:
        call: picklable function without arguments.
        seconds: time limit; 0 means no limit.

    Returns:
        An event of the kind done or failed.
    """
    events: list[JobEvent] = []
    supervise([call], _called, 1, lambda: False, events.append, seconds)
    return events[-1]


def _called(call: Callable[[], Any], stop: StopCheck, report: Callable[[Any], None]) -> Any:
    return call()


def run_jobs(jobs: Sequence[Any], task: Task, processes: int, stop: StopCheck, send: EventSink) -> None:
    """Call `task(job, stop, report)` for every job, in several processes if possible.

    One process runs several jobs, which share what they read. If `processes` is 1, or if there is only one job, the jobs run in
    this process. Therefore do not use this function for jobs whose code may end the process.

    Args:
        task: function that runs one job, picklable.
        processes: maximum number of processes.
        `send`: function that receives every event in this process.
    """
    if processes > 1 and len(jobs) > 1:
        in_turns = min(MOST_IN_TURNS, math.ceil(len(jobs) / (SHARES * processes)))
        supervise(jobs, task, processes, stop, send, in_turns=in_turns)
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
