"""Number of usable CPU cores, and a loop that runs in parallel in copies of the process."""

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
LEAST = 3  # smallest number of items per process; a fork takes about as long as one page
MOST = 8  # largest number of processes; each may need as much memory as this process


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use, or of all cores without CPU affinity."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel_for(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Call work(item) for every item, in parallel if that is safe and saves time.

    The parallel processes are forked copies of this process. A copy inherits the memory of this process, so no data are sent to
    the copy. Results that a copy keeps in memory are lost, so `work` must write its results to files. If a copy fails or is
    killed, this process repeats the items of the copy. Therefore `work` may be called twice for an item, which must be harmless,
    and exceptions of `work` are raised in this process.
    """
    processes = max(1, min(usable_cores(), MOST, len(items) // LEAST)) if _may_be_copied() else 1
    shares = [items[offset::processes] for offset in range(processes)]
    copies = _copies(work, shares[1:])
    try:
        for item in shares[0]:
            work(item)
        for copy in copies:
            copy.join()
    except BaseException:
        for copy in copies:
            copy.kill()  # without kill, the copy could write files while the caller removes them
            copy.join()
        raise
    # a missing exit code counts as a failure
    unfinished_shares = [share for share, copy in zip(shares[1:], copies, strict=False) if copy.exitcode != 0]
    for share in (*unfinished_shares, *shares[1 + len(copies) :]):
        for item in share:
            work(item)


def _may_be_copied() -> bool:
    """Return whether a fork of this process is safe."""
    # a copy has only the calling thread, so a lock of another thread (even one unknown to `threading`) stays locked
    is_only_thread = _thread._count() == 0
    return sys.platform == "linux" and is_only_thread and not multiprocessing.current_process().daemon


def _copies(work: Callable[[T], None], shares: Sequence[Sequence[T]]) -> list[multiprocessing.Process]:
    """Start one forked copy per share, or fewer copies if the system allows no more."""
    copies: list[multiprocessing.Process] = []
    frozen = gc.get_freeze_count()  # objects that the caller froze stay frozen
    if not frozen:  # garbage collection in a copy would otherwise touch, and so duplicate, all inherited memory
        gc.freeze()
    try:
        for share in shares:
            process = multiprocessing.get_context("fork").Process(target=_do, args=(work, share), daemon=True)
            # Python 3.12 warns about threads of numerical libraries, which pages do not use
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            copies.append(process)
    except OSError as error:  # not enough memory or processes
        LOG.info(
            "%s: %d parallel processes could not be started, so this process does their work",
            error,
            len(shares) - len(copies),
        )
    finally:
        if not frozen:
            gc.unfreeze()
    return copies


def _do(work: Callable[[T], None], share: Sequence[T]) -> None:
    parent_pid = os.getppid()
    try:
        for item in share:
            if os.getppid() != parent_pid:
                os._exit(1)  # the parent was killed: no process waits for the results
            work(item)
    except BaseException:
        os._exit(1)  # no message: the parent repeats the work and raises the exception
