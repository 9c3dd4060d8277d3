"""Interrupts that wait for the end of a short piece of work, so that Ctrl-C leaves nothing half written in a store."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("SIGINT", "SIGUSR1")  # Ctrl-C, and what interrupts a worker process


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let the first interrupt act when the block has ended; a second one acts at once.

    Only the main thread of a process gets signals: in any other thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    usual = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    deferred: list[int] = []

    def defer(number: int, frame: Any) -> None:
        deferred.append(number)
        _restore(usual)

    for number in usual:
        signal.signal(number, defer)
    try:
        yield
    finally:
        _restore(usual)
        if deferred:
            signal.raise_signal(deferred[0])


def _restore(usual: dict[int, Any]) -> None:
    for number, handler in usual.items():
        signal.signal(number, handler)
