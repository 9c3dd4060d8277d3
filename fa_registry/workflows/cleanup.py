"""What killed processes leave behind: shown by `doctor`, mended by `doctor --repair`, and before anything else is written.

Whoever is at work is not touched: what names no process, or one that is at work, of another machine or another container, stays.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fa_registry import process_ownership
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.lease import HeartbeatMonitor

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
STATES = {
    "complete": "FINISHED",
    "diverged": "FINISHED",
    schema.STOPPED_EARLY: "FINISHED",
}  # by what a run says of itself


@dataclass(frozen=True)
class StaleItem:
    """kind: what it is called in a row of `doctor`. what: this one. mend: takes it away."""

    kind: str
    what: str
    mend: Callable[[], object]


RUNS, FOLDERS, PAGES = "runs of ended processes", "temporary folders", "half-written pages"
JOURNAL, PROCESSES, STATE_FILES = "database journal", "workers without a parent", "files to go on from"
KINDS = (RUNS, FOLDERS, PAGES, JOURNAL, PROCESSES, STATE_FILES)


def resume_folder(registry: Path) -> Path:
    """Where the files lie that stopped runs go on from. registry: see stores.registry_folder."""
    return registry / "resume"


def stale_items(
    tracker: Tracker | None,
    registry: Path,
    database: Path | None = None,
    pages: Path | None = None,
    signs: HeartbeatMonitor | None = None,
) -> list[StaleItem]:
    """All that can be taken away. tracker: None where no store can be opened. database, pages: to be looked into too.

    signs: what was seen of other machines' runs; without it none of them is known to be gone.
    """
    gone = zombies(tracker, signs) if tracker else ()
    found = [StaleItem(RUNS, _named(run), partial(close, tracker, run)) for run in gone]
    found += [
        StaleItem(FOLDERS, str(path), partial(process_ownership.remove_quietly, path))
        for path in process_ownership.abandoned_folders()
    ]
    halves = process_ownership.abandoned(pages, ".*") if pages else []
    found += [StaleItem(PAGES, str(path), partial(process_ownership.remove_quietly, path)) for path in halves]
    if database and _is_half_written(database):
        found.append(StaleItem(JOURNAL, f"{database}-journal", partial(_roll_back, database)))
    found += [StaleItem(PROCESSES, str(pid), partial(_end, pid)) for pid in process_ownership.abandoned_processes()]
    states = resume_folder(registry)
    halves = [*process_ownership.abandoned(states, ".*"), *sorted(states.glob(f"*{process_ownership.DAMAGED}"))]
    return found + [
        StaleItem(STATE_FILES, str(path), partial(process_ownership.remove_quietly, path)) for path in halves
    ]


def clear(tracker: Tracker, registry: Path) -> None:
    """Mend what a killed process left, before this one writes; damaged files stay until a person has seen them."""
    for left in stale_items(tracker, registry):
        if not left.what.endswith(process_ownership.DAMAGED):
            left.mend()


def zombies(tracker: Tracker, signs: HeartbeatMonitor | None = None) -> list[StoredRun]:
    """Runs that the store or they themselves say are at work, although their process is gone.

    signs: what was seen of those on other machines; without it none of them is known to be gone.
    """
    signs = signs or HeartbeatMonitor()
    running = tracker.search({schema.TAG_STATUS: "running"}) + tracker.search({}, state="RUNNING")
    known = {run.run_id: run for run in running}.values()
    return [run for run in known if signs.is_dead(run)]


def says_running(run: StoredRun) -> bool:
    """Whether the store or the run itself says that it is at work."""
    return "running" in (run.tags.get(schema.TAG_STATUS), run.state.lower())


def close_gone(tracker: Tracker, runs: Iterable[StoredRun], signs: HeartbeatMonitor, as_status: str = "failed") -> None:
    """End those of these that say they are at work and whose process is gone."""
    for run in runs:
        if says_running(run) and signs.is_dead(run):
            close(tracker, run, as_status)


def close_zombies(
    tracker: Tracker, tags: Mapping[str, str], signs: HeartbeatMonitor | None = None, as_status: str = "failed"
) -> None:
    """End those with these tags."""
    close_gone(tracker, tracker.search(tags), signs or HeartbeatMonitor(), as_status)


def close(tracker: Tracker, run: StoredRun, as_status: str = "failed") -> None:
    """End a run whose process is gone, as what it says it is.

    A run that says nothing ends as `as_status`; if its state is KILLED already, a person had stopped it.
    """
    status = run.tags.get(schema.TAG_STATUS, "")
    if status not in schema.ENDED_STATUSES:
        status = schema.INTERRUPTED if run.state == "KILLED" else as_status
        tracker.log(run.run_id, tags={schema.TAG_STATUS: status})
    tracker.finish(run.run_id, STATES.get(status, "KILLED"))


def _named(run: StoredRun) -> str:
    return f"{run.tags.get(schema.TAG_KIND, 'run')} {run.run_id} ({run.name})"


def _is_half_written(database: Path) -> bool:
    """Whether a killed writer's journal keeps everybody from reading; that of one at work does not."""
    if not database.with_name(f"{database.name}-journal").exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return "readonly" in str(error)  # to read, the journal would have to be written back
    return False


def _roll_back(database: Path) -> None:
    """Reading it once, with the right to write, is what sqlite asks for."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, KILL)
