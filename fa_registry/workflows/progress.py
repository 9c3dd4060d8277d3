"""Progress of many jobs: a line for every run that ends, in Python's log, and bars on the terminal of whoever listens.

The command line prints the log on standard error. In Python nothing is printed unless `logging` is told to.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fa_registry.studies.executors.base import JobEvent
from fa_registry.workflows.watching import fired_words

LOG = logging.getLogger(__name__)


def joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


class Progress:
    """Context manager; `show` takes the executor's events. names: one a job. words: of a job's result."""

    def __init__(self, title: str, names: Sequence[str], words: Callable[[Any], str]):
        self._title = title
        self._names = names
        self._words = words
        console = Console(file=sys.stderr)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not (console.is_terminal and LOG.isEnabledFor(logging.INFO)),
        )
        self._lines: dict[int, TaskID] = {}
        self._fired: dict[int, set[str]] = {}
        self._finished = 0
        self._started = time.monotonic()

    def __enter__(self) -> Progress:
        LOG.info(self._title)
        self._bars.start()
        self._total = self._bars.add_task("all runs", total=len(self._names), note="")
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def show(self, event: JobEvent) -> None:
        """Advance the job's bar, or tell its end."""
        if event.kind == "progress":
            self._advance(event)
            return
        self._finished += 1
        self._bars.advance(self._total)
        if event.index in self._lines:
            self._bars.remove_task(self._lines.pop(event.index))
        seconds = time.monotonic() - self._started
        count = f"[{self._finished}/{len(self._names)}]"
        LOG.info("%s %5.0f s  %s: %s", count, seconds, self._names[event.index], self._ending(event))

    def _advance(self, event: JobEvent) -> None:
        epoch, epochs, note, fired = event.value
        self._tell_fires(event.index, fired)
        if event.index not in self._lines:
            self._lines[event.index] = self._bars.add_task(self._names[event.index], total=epochs, note="")
        self._bars.update(self._lines[event.index], completed=epoch, note=joined(note, *fired))

    def _tell_fires(self, index: int, fired: Mapping[str, int]) -> None:
        """A line for every rule that this job had not told of, as it happens: the bar has room for their names only."""
        known = self._fired.setdefault(index, set())
        news = {code: epoch for code, epoch in fired.items() if code not in known}
        known.update(news)
        if news:
            seconds = time.monotonic() - self._started
            LOG.info("%5.0f s  %s: %s", seconds, self._names[index], fired_words(news))

    def _ending(self, event: JobEvent) -> str:
        if event.kind == "failed":
            return f"FAILED: {event.value.strip().splitlines()[-1]}"
        if event.kind == "stopped":
            return "stopped" + (f": {event.value}" if event.value else " before it began")
        return self._words(event.value)
