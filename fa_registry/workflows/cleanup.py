"""Find and remove what killed processes left behind: `doctor` lists it, `doctor --repair` removes it.

The same cleanup runs before other commands write. An item is left alone if its process is alive, on another machine or
in another container, or if it names no process.
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
}  # by the run's status tag


@dataclass(frozen=True)
class StaleItem:
    """One item that a killed process left behind.

    Attributes:
        kind: its label in a row of `doctor`.
        what: the name of this item.
        mend: removes or closes it.
    """

    kind: str
    what: str
    mend: Callable[[], object]


RUNS, FOLDERS, PAGES = "runs of ended processes", "temporary folders", "half-written pages"
JOURNAL, PROCESSES, STATE_FILES = "database journal", "workers without a parent", "resume files"
KINDS = (RUNS, FOLDERS, PAGES, JOURNAL, PROCESSES, STATE_FILES)


def resume_folder(registry: Path) -> Path:
    """Return the folder of the resume files of stopped runs. registry: see `stores.registry_folder`."""
    return registry / "resume"


def stale_items(
    tracker: Tracker | None,
    registry: Path,
    database: Path | None = None,
    pages: Path | None = None,
    signs: HeartbeatMonitor | None = None,
) -> list[StaleItem]:
    """Return everything that can be removed.

    Args:
        tracker: None if no store can be opened.
        database: an sqlite database to check for a journal.
        pages: a folder of pages to check for half-written ones.
        signs: observed heartbeats of runs on other machines; without it all of those count as alive.
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
    """Remove what killed processes left behind, before this process writes.

    Damaged files are kept until a person has seen them.
    """
    for left in stale_items(tracker, registry):
        if not left.what.endswith(process_ownership.DAMAGED):
            left.mend()


def zombies(tracker: Tracker, signs: HeartbeatMonitor | None = None) -> list[StoredRun]:
    """Return the runs that are marked as running although their process is gone.

    Args:
        signs: observed heartbeats of runs on other machines; without it all of those count as alive.
    """
    signs = signs or HeartbeatMonitor()
    running = tracker.search({schema.TAG_STATUS: "running"}) + tracker.search({}, state="RUNNING")
    known = {run.run_id: run for run in running}.values()
    return [run for run in known if signs.is_dead(run)]


def says_running(run: StoredRun) -> bool:
    """Return whether the store or the run's status tag marks the run as running."""
    return "running" in (run.tags.get(schema.TAG_STATUS), run.state.lower())


def close_gone(tracker: Tracker, runs: Iterable[StoredRun], signs: HeartbeatMonitor, as_status: str = "failed") -> None:
    """Close those of these runs that are marked as running and whose process is gone."""
    for run in runs:
        if says_running(run) and signs.is_dead(run):
            close(tracker, run, as_status)


def close_zombies(
    tracker: Tracker, tags: Mapping[str, str], signs: HeartbeatMonitor | None = None, as_status: str = "failed"
) -> None:
    """Close the runs with these tags that are marked as running and whose process is gone."""
    close_gone(tracker, tracker.search(tags), signs or HeartbeatMonitor(), as_status)


def close(tracker: Tracker, run: StoredRun, as_status: str = "failed") -> None:
    """Close a run whose process is gone, with the status in its tag.

    A run without a final status gets `as_status`. If its state is already KILLED, a person had stopped it.
    """
    status = run.tags.get(schema.TAG_STATUS, "")
    if status not in schema.ENDED_STATUSES:
        status = schema.INTERRUPTED if run.state == "KILLED" else as_status
        tracker.log(run.run_id, tags={schema.TAG_STATUS: status})
    tracker.finish(run.run_id, STATES.get(status, "KILLED"))


def _named(run: StoredRun) -> str:
    return f"{run.tags.get(schema.TAG_KIND, 'run')} {run.run_id} ({run.name})"


def _is_half_written(database: Path) -> bool:
    """Return whether a killed writer's journal blocks all readers; the journal of a live writer does not."""
    if not database.with_name(f"{database.name}-journal").exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return "readonly" in str(error)  # to read, the journal would have to be written back
    return False


def _roll_back(database: Path) -> None:
    """Roll the journal back: sqlite does so when the database is read once with write access."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, KILL)
