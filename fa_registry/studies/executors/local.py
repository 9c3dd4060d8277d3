"""Local executor: jobs in processes of this machine, or in this process when one is enough.

A stop request (Ctrl-C) lets every running job end at its next safe point; jobs that have not begun are dropped.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from queue import Empty
from typing import Any

from fa_registry.studies.executors.base import Executor, JobEvent, Resources, Stop, Tell, Work, ended
from fa_registry.training.devices import pinned_threads
from fa_registry.training.loop import in_one_go

POLL_SECONDS = 0.1
GRACE_SECONDS = 10.0  # for an epoch to end in the workers that outlive one that was killed

Task = Callable[[Any, Stop, Callable[[Any], None]], Any]


class Local(Executor):
    """Jobs one after another in this process, or each in one of `at_once` processes; a job pins its own CPU threads."""

    def run(self, jobs: Sequence[Any], work: Work, resources: Resources, stop: Stop, tell: Tell) -> None:
        run_jobs(jobs, partial(_whole, work, resources.threads), resources.at_once, stop, tell)


def _whole(work: Work, threads: int, job: Any, stop: Stop, report: Callable[[Any], None]) -> Any:
    with pinned_threads(threads):
        return in_one_go(work(job, stop, report))


def run_jobs(jobs: Sequence[Any], task: Task, processes: int, stop: Stop, tell: Tell) -> None:
    """Call task(job, stop, report) for every job; `tell` hears every event, here. `task` can be pickled."""
    if processes <= 1 or len(jobs) <= 1:
        for index, job in enumerate(jobs):
            tell(JobEvent(index, "stopped") if stop() else _attempt(index, job, task, stop, tell))
    else:
        _run_in_processes(jobs, task, min(processes, len(jobs)), stop, tell)


def _run_in_processes(jobs: Sequence[Any], task: Task, processes: int, stop: Stop, tell: Tell) -> None:
    context = multiprocessing.get_context("spawn")  # a forked torch keeps its parent's thread pool in a broken state
    stopping, broken, news = context.Event(), context.Event(), context.Queue()
    with ProcessPoolExecutor(processes, context, _start_worker, (stopping, broken, news)) as pool, _setting(stopping):
        running: dict[Future, int] = {
            pool.submit(_in_worker, index, job, task): index for index, job in enumerate(jobs)
        }
        while running:
            if stop() and not stopping.is_set():
                stopping.set()  # jobs that have not begun find it set and end at once
            done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for event in _drain(news):
                tell(event)
            if not broken.is_set() and any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                stopping.set()
                broken.set()
                _end_workers()
            for future in done:
                tell(_result(future, running.pop(future)))
        for event in _drain(news, POLL_SECONDS):  # what a worker told last may arrive after its result
            tell(event)


@contextmanager
def _setting(stopping: Any) -> Iterator[None]:
    """Whatever ends the parent's loop ends the workers: leaving the pool waits for all jobs, begun or not."""
    try:
        yield
    except BaseException:
        stopping.set()
        raise


def _end_workers() -> None:
    """After one worker died: let the others end their job at its next safe point and leave, then make sure of it.

    The pool asks them with SIGTERM, which they leave to the parent, and then waits for them for ever.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for worker in multiprocessing.active_children():
        worker.kill()


def _result(future: Future, index: int) -> JobEvent:
    error = future.exception()
    if error is not None:  # the worker itself died (killed, out of memory): the job could not report
        return JobEvent(index, "failed", f"the worker process died: {error!r}")
    return future.result()


def _drain(news: Any, seconds: float = 0.0) -> Iterator[JobEvent]:
    """What has been told, until nothing more arrives for so long."""
    while True:
        try:
            yield news.get(block=seconds > 0, timeout=seconds)
        except Empty:
            return


def _attempt(index: int, job: Any, task: Task, stop: Stop, tell: Tell) -> JobEvent:
    return ended(index, lambda: task(job, stop, lambda value: tell(JobEvent(index, "progress", value))))


_worker: dict[str, Any] = {}  # a pool hands events and queues to its workers through their initializer only


def _start_worker(stopping: Any, broken: Any, news: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group: the parent decides what they mean
        signal.signal(number, signal.SIG_IGN)
    _worker.update(stopping=stopping, broken=broken, news=news)


def _in_worker(index: int, job: Any, task: Task) -> JobEvent:
    if _worker["stopping"].is_set():
        return JobEvent(index, "stopped")
    end = _attempt(index, job, task, _worker["stopping"].is_set, _worker["news"].put)
    if _worker["broken"].is_set():
        os._exit(0)  # the pool is gone and nobody takes the result; the job has ended at a safe point
    return end


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Inside, the first SIGINT or SIGTERM is a request to stop (yielded as a function); the second SIGINT interrupts at once.

    A SIGTERM is meant for the whole program: what handles it outside hears of it when the block has ended. Outside the main
    thread, where Python lets nobody hear signals, nothing is requested.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    requested: list[int] = []
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

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
