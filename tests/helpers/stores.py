"""What takes seconds to make is made once: stores for all workers of a session, a run's figures for all audits of a worker."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import LoggedModel

from fa_registry import diagnostics, jsonio
from fa_registry.evidence import remeasure
from fa_registry.evidence.replayer import ReplayResult
from fa_registry.records import RunRecord
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker

Figures = dict[tuple, tuple[RunRecord, ReplayResult | None]]
LEADING = (("runs", "artifact_uri"), ("experiments", "artifact_location"))  # columns that hold addresses of files


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` filled, for the first worker that asked; tests only read it, or write to a copy.

    Two fixtures that fill folders of one name would read each other's: an error.
    """
    maker = f"{make.__module__}.{make.__qualname__}"
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    folder = (factory.getbasetemp().parent if worker else factory.getbasetemp()) / f"once-{name}"
    whole = folder.with_suffix(".whole")
    with FileLock(folder.with_suffix(".lock")):
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)  # a half that a test which failed has left
            folder.mkdir()
            make(folder)
            whole.write_text(maker, encoding="utf-8")
        assert (found := whole.read_text(encoding="utf-8")) == maker, f"{name!r} was made by {found}, not by {maker}"
    return folder


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """As a command that was started in `folder`, regardless of the store that the caller's environment names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


def copy_store(source: Path, target: Path) -> None:
    """The working folder `source` as `target`; the addresses in its database lead to its own files."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    with closing(sqlite3.connect(target / "mlflow.db")) as database, database:
        for table, column in LEADING:
            database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (str(source), str(target)))


def cut_off_a_write(database: Path) -> None:
    """Leave what a kill in the middle of a commit leaves: half of a write in the file, and its undo in the journal next to it."""
    writing, killed = database.with_name("writing.db"), [database, Path(f"{database}-journal")]
    shutil.copy(database, writing)
    with closing(sqlite3.connect(writing, isolation_level=None)) as connection:
        connection.execute(
            "PRAGMA cache_size = 1"
        )  # pages, so that most of the write is in the file before it is whole
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE half (text)")
        connection.executemany("INSERT INTO half VALUES (?)", [("x" * 3000,)] * 100)
        for source, target in zip([writing, Path(f"{writing}-journal")], killed, strict=True):
            shutil.copy(source, target)
        connection.execute("ROLLBACK")
    writing.unlink()


def remembering(measure: Callable[..., tuple[RunRecord, ReplayResult | None]], known: Figures) -> Callable:
    """`evidence._measured` that answers from `known` where record, files, code and what is asked are the same."""

    def measured(tracker, record, measuring, data_root):
        folder = tracker.artifact(record.run_id, schema.PROVENANCE).parent
        added = [folder / path for path in schema.ADDED_BY_AUDITS]
        paths = [path for path in folder.rglob("*") if path.is_file() and path not in added]
        files = {str(path.relative_to(folder)): jsonio.file_digest(path) for path in paths}
        asked = [jsonio.encode(record), files, measuring.trust_logged, str(data_root), str(measuring.replay)]
        code = [jsonio.encode(remeasure.code_check(record)), diagnostics.CATALOG.names()]
        # A test may put its own functions in their place.
        functions = (remeasure.obstacle, remeasure.build_setup, remeasure.replay_first_steps, remeasure.remeasure)
        key = (jsonio.digest_of([asked, code]), *functions)
        if key not in known:
            known[key] = measure(tracker, record, measuring, data_root)
        return known[key]

    return measured


def model_entries(tracker: MlflowTracker) -> list[LoggedModel]:
    """What the tab *Models* of the tracker's experiment lists."""
    return list(MlflowClient(tracker.uri).search_logged_models([tracker.experiment_id]))
