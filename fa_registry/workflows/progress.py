"""Progress of many jobs on standard error: live bars on a terminal, one plain line a finished run elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fa_registry.studies.executors.local import JobEvent
from fa_registry.workflows.watching import fired_words


def joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


class Progress:
    """Context manager; `show` takes the executor's events. names: one a job. words: of a job's result."""

    def __init__(self, title: str, names: Sequence[str], words: Callable[[Any], str]):
        self._title = title
        self._names = names
        self._words = words
        self._console = Console(file=sys.stderr)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._lines: dict[int, TaskID] = {}
        self._fired: dict[int, set[str]] = {}
        self._finished = 0
        self._started = time.monotonic()

    def __enter__(self) -> Progress:
        self._console.print(self._title, highlight=False, markup=False)
        self._bars.start()
        self._total = self._bars.add_task("all runs", total=len(self._names), note="")
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def show(self, event: JobEvent) -> None:
        """Advance the job's bar, or print its end."""
        if event.kind == "progress":
            self._advance(event)
            return
        self._finished += 1
        self._bars.advance(self._total)
        if event.index in self._lines:
            self._bars.remove_task(self._lines.pop(event.index))
        seconds = time.monotonic() - self._started
        line = (
            f"[{self._finished}/{len(self._names)}] {seconds:5.0f} s  {self._names[event.index]}: {self._ending(event)}"
        )
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _advance(self, event: JobEvent) -> None:
        epoch, epochs, note, fired = event.value
        self._tell_fires(event.index, fired)
        if event.index not in self._lines:
            self._lines[event.index] = self._bars.add_task(self._names[event.index], total=epochs, note="")
        self._bars.update(self._lines[event.index], completed=epoch, note=joined(note, *fired))

    def _tell_fires(self, index: int, fired: Mapping[str, int]) -> None:
        """A line for every rule that this job had not told of, as it happens: the bar has room for their names only."""
        told = self._fired.setdefault(index, set())
        news = {code: epoch for code, epoch in fired.items() if code not in told}
        told.update(news)
        if news:
            seconds = time.monotonic() - self._started
            line = f"{seconds:5.0f} s  {self._names[index]}: {fired_words(news)}"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _ending(self, event: JobEvent) -> str:
        if event.kind == "failed":
            return f"FAILED: {event.value.strip().splitlines()[-1]}"
        if event.kind == "stopped":
            return "stopped" + (f": {event.value}" if event.value else " before it began")
        return self._words(event.value)
