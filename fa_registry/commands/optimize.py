"""The optimize verb: let a sqlite store count what it holds, so that its queries take the right way through."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass

from fa_registry.commands.stores import open_tracker
from fa_registry.errors import StoreError, UsageError
from fa_registry.tracking.store import sqlite_path

COUNTED = ("runs", "metrics", "latest_metrics", "params", "tags")


@dataclass(frozen=True)
class Optimized:
    """rows: of each of the store's large tables."""

    store: str
    rows: dict[str, int]


def run_optimize(store: str = "") -> Optimized:
    """Run ANALYZE on a sqlite store: MLflow never does, and sqlite then scans all metrics of all runs for one chart.

    Raises UsageError for a store that is no sqlite database (others count by themselves), StoreError where it is locked.
    """
    uri = open_tracker(store, create=False).uri
    path = sqlite_path(uri)
    if path is None:
        raise UsageError(
            f"optimize: expected a sqlite store, found {uri}; a database server keeps its statistics itself"
        )
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
            connection.execute("ANALYZE")
            connection.commit()
            rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in COUNTED}
    except sqlite3.OperationalError as error:
        raise StoreError(f"store {uri}: cannot be analysed now: {error}; is a study being trained into it?") from error
    return Optimized(uri, rows)
