"""Removal of stale items: runs, files and processes that a killed process left.

The command `doctor` lists stale items. `doctor --repair` removes stale items. Commands that write to the store first remove stale
items too. An item is kept if its process is alive, unknown, or on another machine or container. Exception: a run on another
machine is closed if its heartbeats have stopped. A command ends before a lease does, so each command remembers the heartbeats of
audits in a file, and a later command closes an audit whose heartbeat has not changed for longer than its lease.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fa_registry import process_ownership
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.run_state import HeartbeatMonitor, RunState

HEARTBEATS = (
    "heartbeats.json"  # in the folder `stores.registry_folder`: run id → [heartbeat, time of its first observation]
)
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(frozen=True)
class StaleItem:
    """One run, file or process that a killed process left.

    Attributes:
        kind: One of KINDS; the label in the output of `doctor`.
        mend: Function that removes or closes the item.
        is_damaged: Whether the item is a damaged file, which only the user removes.
    """

    kind: str
    what: str
    mend: Callable[[], object]
    is_damaged: bool = False


RUNS, FOLDERS, PAGES = "runs of ended processes", "temporary folders", "half-written pages"
JOURNAL, PROCESSES, STATE_FILES = "database journal", "workers without a parent", "resume files"
KINDS = (RUNS, FOLDERS, PAGES, JOURNAL, PROCESSES, STATE_FILES)


def resume_folder(registry: Path) -> Path:
    """Return the folder of the resume files of stopped runs, in the folder `stores.registry_folder`."""
    return registry / "resume"


def stale_items(
    tracker: Tracker | None,
    registry: Path,
    database: Path | None = None,
    pages: Path | None = None,
    heartbeats: HeartbeatMonitor | None = None,
) -> list[StaleItem]:
    """Return all stale items that can be removed.

    If `heartbeats` is None, every run on another machine counts as alive.

    Args:
        tracker: The store, or None if the store cannot be opened.
        registry: Folder that `stores.registry_folder` returned.
        database: Path of a sqlite database to check for the journal of a killed process.
        pages: Folder to check for half-written pages.
    """
    heartbeats = heartbeats or HeartbeatMonitor()
    runs = tracker.search({schema.TAG_STATUS: "running"}) + tracker.search({}, state="RUNNING") if tracker else []
    silent = silent_audits(runs, registry, time.time())
    runs = list({run.run_id: run for run in runs}.values())
    abandoned = [run for run in runs if run.run_id in silent or RunState(run).is_abandoned(heartbeats)]
    items = [StaleItem(RUNS, run_text(run), partial(close, tracker, run)) for run in abandoned]
    items += _removable(FOLDERS, process_ownership.abandoned_folders())
    items += _removable(PAGES, process_ownership.abandoned(pages, ".*") if pages else [])
    if database and _is_half_written(database):
        items.append(StaleItem(JOURNAL, f"{database}-journal", partial(_roll_back, database)))
    items += [StaleItem(PROCESSES, str(pid), partial(_end, pid)) for pid in process_ownership.abandoned_processes()]
    states = resume_folder(registry)
    items += _removable(STATE_FILES, process_ownership.abandoned(states, ".*"))
    damaged = _removable(STATE_FILES, sorted(states.glob(f"*{process_ownership.DAMAGED}")))
    return items + [replace(item, is_damaged=True) for item in damaged]


def silent_audits(runs: Iterable[StoredRun], registry: Path, now: float) -> set[str]:
    """Return the ids of other machines' audits without a heartbeat for longer than a lease.

    All times are of this machine's clock, because clocks of two machines differ. An observed heartbeat is remembered in `registry`.

    Args:
        runs: running runs.
        registry: folder that `stores.registry_folder` returned.
        now: time in seconds.
    """
    path, observed = registry / HEARTBEATS, {}
    audits = [run for run in runs if run.tags.get(schema.TAG_KIND) == "audit"]
    audits = [run for run in audits if not process_ownership.is_here(run.tags.get(schema.TAG_PROCESS, ""))]
    remembered = _remembered(path)
    for run in audits:
        heartbeat = run.tags.get(schema.TAG_HEARTBEAT, "")
        last_heartbeat, since = remembered.get(run.run_id, ("", now))
        # after a clock that jumped back, an observation would be in the future
        observed[run.run_id] = (heartbeat, min(since, now) if heartbeat == last_heartbeat else now)
    if observed != remembered:
        with contextlib.suppress(OSError):  # a folder that cannot be written remembers nothing
            registry.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}{process_ownership.owner_suffix()}")
            temporary.write_text(json.dumps(observed), encoding="utf-8")
            temporary.replace(path)
    return {run.run_id for run in audits if now - observed[run.run_id][1] > RunState(run).lease}


def _remembered(path: Path) -> dict[str, tuple[str, float]]:
    """Return the content of the file of heartbeats; empty if the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        content = json.loads(path.read_text(encoding="utf-8"))
        return {run_id: (str(heartbeat), float(since)) for run_id, (heartbeat, since) in content.items()}
    return {}


def _removable(kind: str, paths: Iterable[Path]) -> list[StaleItem]:
    return [StaleItem(kind, str(path), partial(process_ownership.remove_quietly, path)) for path in paths]


def clear(tracker: Tracker, registry: Path) -> None:
    """Remove all stale items except damaged files, which `doctor` must first show to the user."""
    for item in stale_items(tracker, registry):
        if not item.is_damaged:
            item.mend()


def close_abandoned(
    tracker: Tracker, runs: Iterable[StoredRun], heartbeats: HeartbeatMonitor | None = None, as_status: str = "failed"
) -> None:
    """Close each given run that is marked as running although its process has ended.

    If `heartbeats` is None, every run on another machine counts as alive. A closed run without a final status gets `as_status`.
    """
    heartbeats = heartbeats or HeartbeatMonitor()
    for run in runs:
        if RunState(run).is_abandoned(heartbeats):
            close(tracker, run, as_status)


def close(tracker: Tracker, run: StoredRun, as_status: str = "failed") -> None:
    """Close a run whose process has ended.

    A run without a final status gets the status `as_status`, or `interrupted` if a person stopped the run.
    """
    state = RunState(run)
    if state.status not in schema.ENDED_STATUSES:
        # a run with the state KILLED was stopped by a person
        status = schema.INTERRUPTED if run.state == "KILLED" else as_status
        tracker.log(run.run_id, tags={schema.TAG_STATUS: status})
    tracker.finish(run.run_id, "FINISHED" if state.has_results else "KILLED")


def run_text(run: StoredRun) -> str:
    """Return the kind, the id and the name of a run."""
    return f"{run.tags.get(schema.TAG_KIND, 'run')} {run.run_id} ({run.name})"


def _is_half_written(database: Path) -> bool:
    """Return whether the database cannot be read because a killed process left its journal."""
    if not database.with_name(f"{database.name}-journal").exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return "readonly" in str(error)  # before a query, sqlite must write the journal back into the database
    return False


def _roll_back(database: Path) -> None:
    """Roll back the journal by reading the database with write access."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, KILL)
