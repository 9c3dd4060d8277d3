"""Side by side: several jobs in turns in this process, so that one card works for all of them while each waits for nobody.

A job is a generator that yields where it has handed work to the card. One thread does it all: a job's numbers cannot depend on
who runs beside it, and no two captures of a CUDA graph meet.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from fa_registry.errors import Interrupted
from fa_registry.studies.executors.local import JobEvent

Steps = Callable[[Any, Callable[[], bool], Callable[[Any], None]], Generator[None, None, Any]]


def run_side_by_side(
    jobs: Sequence[Any], steps: Steps, count: int, stop: Callable[[], bool], tell: Callable[[JobEvent], None]
) -> None:
    """Go through steps(job, stop, report) of every job, `count` at a time in turns; `tell` hears every event."""
    waiting = deque(enumerate(jobs))
    at_work: dict[int, Generator[None, None, Any]] = {}
    try:
        while waiting or at_work:
            while waiting and len(at_work) < count:
                index, job = waiting.popleft()
                if stop():
                    tell(JobEvent(index, "stopped"))
                else:
                    at_work[index] = steps(job, stop, _reporter(index, tell))
            for index in list(at_work):
                event = _advance(index, at_work[index])
                if event is not None:
                    del at_work[index]
                    tell(event)
    finally:
        for unfinished in at_work.values():  # interrupted at once: each writes down that it was
            unfinished.close()


def _reporter(index: int, tell: Callable[[JobEvent], None]) -> Callable[[Any], None]:
    return lambda value: tell(JobEvent(index, "progress", value))


def _advance(index: int, steps: Generator[None, None, Any]) -> JobEvent | None:
    """Take the job to its next yield; the event that ends it, if it has ended."""
    try:
        next(steps)
    except StopIteration as finished:
        return JobEvent(index, "done", finished.value)
    except Interrupted as interruption:
        return JobEvent(index, "stopped", str(interruption))
    except Exception:
        return JobEvent(index, "failed", traceback.format_exc())
    return None
