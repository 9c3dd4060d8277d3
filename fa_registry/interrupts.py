"""Delay of interrupts during a short block, so Ctrl-C leaves no incomplete file."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("SIGINT", "SIGUSR1")  # Ctrl-C, and the signal that interrupts a worker process


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Delay the first interrupt until the `with` block has ended.

    An interrupt is the signal SIGINT or SIGUSR1. A second interrupt takes effect immediately. Outside the main thread the
    function does nothing, because only the main thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    previous_handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    deferred: list[int] = []

    def defer(number: int, frame: Any) -> None:
        deferred.append(number)
        _restore(previous_handlers)

    for number in previous_handlers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        _restore(previous_handlers)
        if deferred:
            signal.raise_signal(deferred[0])


def _restore(previous_handlers: dict[int, Any]) -> None:
    for number, handler in previous_handlers.items():
        signal.signal(number, handler)
