"""The processor's cores: how many there are for this process, and work that all of them take part in."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
LEAST = 3  # items a process: a copy of one takes about as long as a page


def usable_cores() -> int:
    """Those that this process may run on, where the system can say (taskset, a batch system's share); else all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def each(work: Callable[[T], None], items: Sequence[T]) -> None:
    """work(item) of every item, in copies of this process side by side where that is safe and worth it; raises what work raises.

    work: leaves what it makes in files and may be done again, for what a copy did not end is done here: an error is raised where
    it is caught, and a copy that was killed costs time alone. A copy reads this process's memory as it is, so that nothing is sent
    there, and takes with it what it kept.
    """
    processes = max(1, min(usable_cores(), len(items) // LEAST)) if _may_be_copied() else 1
    shares = [items[place::processes] for place in range(processes)]
    gc.freeze()  # else each looks for cycles in all that it was given, and so makes a copy of its own of the memory
    try:
        copies = [_copy(work, share) for share in shares[1:]]
    finally:
        gc.unfreeze()
    try:
        for item in shares[0]:
            work(item)
    finally:
        for copy in copies:
            copy.join()
    for share, copy in zip(shares[1:], copies, strict=True):
        if copy.exitcode:
            for item in share:
                work(item)


def _may_be_copied() -> bool:
    """A copy has this thread alone: a lock that another one holds would be held for ever. A daemon may have no children."""
    alone = threading.active_count() == 1 and not multiprocessing.current_process().daemon
    return sys.platform == "linux" and alone


def _copy(work: Callable[[T], None], share: Sequence[T]) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=_do, args=(work, share), daemon=True)
    with (
        warnings.catch_warnings()
    ):  # Python 3.12 counts the threads of numerical libraries, which none of our pages use
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def _do(work: Callable[[T], None], share: Sequence[T]) -> None:
    try:
        for item in share:
            work(item)
    except BaseException:
        os._exit(1)  # without a word: the process that this is a copy of does it again, and says it
