"""The processor's cores: how many there are for this process, and work that all of them take part in."""

from __future__ import annotations

import _thread
import gc
import logging
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

LOG = logging.getLogger(__name__)
T = TypeVar("T")
LEAST = 3  # items a process: to copy it takes about as long as a page
MOST = 8  # processes: each may need as much memory as this one


def usable_cores() -> int:
    """Those that this process may run on, where the system can say (taskset, a batch system's share); else all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel_for(work: Callable[[T], None], items: Sequence[T]) -> None:
    """work(item) of every item, in copies of this process side by side where that is safe and worth it; raises what work raises.

    work: leaves what it makes in files and may be done again, for what a copy did not end is done here: an error is raised where
    it is caught, and a copy that was killed costs time alone. A copy reads this process's memory as it is, so that nothing is sent
    there, and takes with it what it kept.
    """
    processes = max(1, min(usable_cores(), MOST, len(items) // LEAST)) if _may_be_copied() else 1
    shares = [items[place::processes] for place in range(processes)]
    copies = _copies(work, shares[1:])
    try:
        for item in shares[0]:
            work(item)
        for copy in copies:
            copy.join()
    except BaseException:
        for copy in copies:
            copy.kill()  # it would go on writing beside whoever clears up
            copy.join()
        raise
    # without an exit code nobody can tell
    undone = [share for share, copy in zip(shares[1:], copies, strict=False) if copy.exitcode != 0]
    for share in (*undone, *shares[1 + len(copies) :]):
        for item in share:
            work(item)


def _may_be_copied() -> bool:
    """A copy has this thread alone: a lock that another one holds would be held for ever. A daemon may have no children."""
    alone = _thread._count() == 0  # beside this one, of threading's threads and of those that it does not know
    return sys.platform == "linux" and alone and not multiprocessing.current_process().daemon


def _copies(work: Callable[[T], None], shares: Sequence[Sequence[T]]) -> list[multiprocessing.Process]:
    """One at work on each share; fewer where the system allows no more of them."""
    copies: list[multiprocessing.Process] = []
    frozen = gc.get_freeze_count()  # somebody else's, and to be left so
    if not frozen:  # else each looks for cycles in all that it was given, and so makes a copy of its own of the memory
        gc.freeze()
    try:
        for share in shares:
            process = multiprocessing.get_context("fork").Process(target=_do, args=(work, share), daemon=True)
            with (
                warnings.catch_warnings()
            ):  # Python 3.12 counts the threads of numerical libraries, which none of our pages use
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            copies.append(process)
    except OSError as error:  # no memory or no process left for it
        LOG.info("%s: the work of %d further processes is done by this one", error, len(shares) - len(copies))
    finally:
        if not frozen:
            gc.unfreeze()
    return copies


def _do(work: Callable[[T], None], share: Sequence[T]) -> None:
    original = os.getppid()
    try:
        for item in share:
            if os.getppid() != original:
                os._exit(1)  # it was killed, and nobody waits for these
            work(item)
    except BaseException:
        os._exit(1)  # without a word: the process that this is a copy of does it again, and says it
