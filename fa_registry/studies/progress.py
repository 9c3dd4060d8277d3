"""Progress of many jobs: progress bars on a terminal, and log lines.

A line is logged when a run ends and when a rule fires. Without a terminal, for example in a log file or pipe, a line with
the epoch is logged if no line was logged for a minute. With these lines, a user can distinguish a long run from a process
that hangs. The command line writes the log to standard error.
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
from fa_registry.studies.rule_monitor import fired_text
from fa_registry.text_safety import escape_to_one_line

LOG = logging.getLogger(__name__)
SECONDS_APART = 60.0  # without a terminal, if the last line is older, a line is logged at the next epoch


def duration(seconds: float | None) -> str:
    """Return a duration as text, e.g. `45 s`, `12 min` or `3.4 h`, or `N/A` for None."""
    if seconds is None:
        return "N/A"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class TimeLeft:
    """Estimator of the remaining time of many jobs, from the epochs trained since the start.

    A job that has not begun is assumed to have the mean number of epochs of the other jobs.
    """

    def __init__(self, jobs: int):
        self._jobs = jobs
        self._epochs: dict[int, tuple[int, int, int]] = {}  # job → epochs at its first report, done, total
        self._ended: set[int] = set()

    def report(self, index: int, epoch: int, epochs: int) -> None:
        """Record that job `index` has trained `epoch` of `epochs` epochs."""
        first = self._epochs.get(index, (epoch,))[0]  # a resumed job trained these epochs earlier
        self._epochs[index] = (first, epoch, epochs)

    def end(self, index: int) -> None:
        """Record that job `index` has ended, successfully or not."""
        self._ended.add(index)

    def seconds(self, elapsed: float) -> float | None:
        """Return the estimated remaining seconds, or None before the first epoch has ended.

        The argument `elapsed` is the number of seconds since the start of the jobs.
        """
        epochs_by_job = {index: epochs - first for index, (first, _, epochs) in self._epochs.items()}
        mean = sum(epochs_by_job.values()) / len(epochs_by_job) if epochs_by_job else 1
        total = sum(epochs_by_job.get(index, mean) for index in range(self._jobs))
        completed = sum(
            epochs_by_job.get(index, mean) if index in self._ended else self._epochs[index][1] - self._epochs[index][0]
            for index in {*self._epochs, *self._ended}
        )
        return elapsed * (total - completed) / completed if completed > 0 else None


def joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


class Progress:
    """Context manager that shows the progress of an executor's jobs.

    Args:
        title: text that is logged at the start.
        names: one name per job.
        text: function that converts the result of a job to text.
    """

    def __init__(self, title: str, names: Sequence[str], text: Callable[[Any], str]):
        self._title = title
        self._names = list(map(escape_to_one_line, names))
        self._words = text
        console = Console(file=sys.stderr)
        self._drawn = console.is_terminal and LOG.isEnabledFor(logging.INFO)
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not self._drawn,
        )
        self._lines: dict[int, TaskID] = {}
        self._fired: dict[int, set[str]] = {}
        self._finished = 0
        self._left = TimeLeft(len(names))
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        LOG.info(self._title)
        self._bars.start()
        self._total = self._bars.add_task("all runs", total=len(self._names), note="")
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def show(self, event: JobEvent) -> None:
        """Update the progress bar of a job, and log the result if the job has ended."""
        if event.kind == "progress":
            self._advance(event)
            return
        if event.kind == "again":
            LOG.warning("%s: %s", self._names[event.index], event.value)
            return
        self._finished += 1
        self._left.end(event.index)
        self._bars.advance(self._total)
        self._bars.update(self._total, note=self._text_left())
        if event.index in self._lines:
            self._bars.remove_task(self._lines.pop(event.index))
        count = f"[{self._finished}/{len(self._names)}] "
        self._report(event.index, joined(self._ending(event), self._text_left()), count)

    def _advance(self, event: JobEvent) -> None:
        epoch, epochs, note, fired = event.value
        self._left.report(event.index, epoch, epochs)
        self._bars.update(self._total, note=self._text_left())
        self._report_fires(event.index, fired)
        if not self._drawn:
            if epoch < epochs and time.monotonic() - self._last_line >= SECONDS_APART:
                self._report(event.index, joined(f"epoch {epoch} of {epochs}", note, self._text_left()))
            return
        if event.index not in self._lines:
            self._lines[event.index] = self._bars.add_task(self._names[event.index], total=epochs, note="")
        self._bars.update(self._lines[event.index], completed=epoch, note=joined(note, *fired))

    def _report_fires(self, index: int, fired: Mapping[str, int]) -> None:
        """Log each rule that has fired for the first time, with the epoch."""
        logged_codes = self._fired.setdefault(index, set())
        new_fires = {code: epoch for code, epoch in fired.items() if code not in logged_codes}
        logged_codes.update(new_fires)
        if new_fires:
            self._report(index, fired_text(new_fires))

    def _text_left(self) -> str:
        """Return the remaining time as text, or an empty string if it is unknown or less than one second."""
        seconds = self._left.seconds(time.monotonic() - self._started)
        return f"about {duration(seconds)} left" if seconds and seconds >= 1 else ""

    def _report(self, index: int, text: str, count: str = "") -> None:
        self._last_line = time.monotonic()
        LOG.info("%s%5.0f s  %s: %s", count, self._last_line - self._started, self._names[index], text)

    def _ending(self, event: JobEvent) -> str:
        if event.kind == "failed":
            return f"FAILED: {event.value.strip().splitlines()[-1]}"
        if event.kind == "stopped":
            return "stopped" + (f": {event.value}" if event.value else " before the run began")
        return self._words(event.value)
