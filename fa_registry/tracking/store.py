"""Which store, and whether it can be used: known before MLflow opens it. client.py opens it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from fa_registry.errors import StoreError
from fa_registry.safe_files import UnreadableFile, check_file
from fa_registry.tracking.store_errors import StoreRefusal

DEFAULT = "sqlite:///mlflow.db"
SQLITE = "sqlite:///"
ARTIFACTS = "mlartifacts"  # beside the database
VERSION, FIRST, RUNS = (
    "alembic_version",
    "experiments",
    "runs",
)  # tables of MLflow's: its schema's release, its first, its runs
NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")  # how such a journal ends, by sqlite's file format
LOOK_SECONDS = 1.0  # for another process to end its write; who opens the store asks again


def resolve_uri(uri: str = "") -> str:
    """The store to use: the argument, else MLFLOW_TRACKING_URI, else sqlite in the current folder.

    A sqlite path is made absolute: MLflow caches stores by URI, so that after a change of folder a relative one still
    means the database in the old folder.
    """
    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI", "") or DEFAULT
    if chosen.startswith("file:") or "://" not in chosen:
        raise StoreError(
            f"store {chosen!r}: expected a database or a server (sqlite:///mlflow.db, postgresql://…, http://…); "
            "MLflow's file store is no longer supported"
        )
    path = sqlite_path(chosen)
    return f"{SQLITE}{path}" if path else chosen


def sqlite_path(uri: str) -> Path | None:
    """The database file of a sqlite URI; None for any other store."""
    return Path(uri.removeprefix(SQLITE)).resolve() if uri.startswith(SQLITE) else None


def _reading(path: Path) -> str:
    """The address of a database that can only be read; by it nothing is written beside it either.

    The driver's name is in it because MLflow makes a folder of what stands before the last slash of `sqlite:///file:…`.
    It is quoted twice, once for sqlite and once for SQLAlchemy.
    """
    return f"sqlite+pysqlite:///file:{quote(quote(str(path)))}?mode=ro&uri=true"


def check_store(uri: str, known_revisions: set[str], make: bool = True) -> str:
    """The address to open the store by, which is another than `uri` where it can only be read.

    make: whether it will be made where it is not there, and written to. Raises StoreError where that cannot be, and for a store
    that is not there, that something else than MLflow has made, or another MLflow.
    """
    path = sqlite_path(uri)
    if path is None:
        return uri
    if not path.parent.is_dir():
        raise StoreError(
            f"store {uri}: the folder {path.parent} does not exist; create it or choose another with --store"
        )
    if path.exists() and not path.is_file():
        raise StoreError(f"store {uri}: {path} is no file; choose another with --store")
    if not path.exists() and _journal(path).exists():
        raise StoreError(
            f"store {uri}: there is {_journal(path).name}, the undo of a write that was cut off, but not its database; "
            "put the database back beside it, or delete it if the database is gone"
        )
    found = revision(path)
    if found is None and not make:
        raise StoreError(f"store {uri}: there is none yet; `fa-registry study` makes one with its first run")
    check_revision(uri, found, known_revisions)
    if make:
        check_writable(uri)
    return _reading(path) if _obstacle(path) else uri


def check_revision(uri: str, found: str | None, known: set[str]) -> None:
    """Raise StoreError for a database whose schema is of a newer MLflow than this."""
    if found and found not in known:
        raise StoreError(
            f"store {uri}: its schema {found!r} is unknown to this MLflow; a newer MLflow made it. "
            "Use that version, or start a new store with --store"
        )


def check_writable(uri: str) -> None:
    """Raise StoreError where a sqlite store can only be read; whether a server takes what is written, it says itself."""
    path = sqlite_path(uri)
    obstacle = path and _obstacle(path)
    if obstacle:
        raise StoreError(f"store {uri}: {obstacle}; choose another with --store, or work on a copy of its folder")


def _obstacle(path: Path) -> str:
    """Why a database and its artifacts cannot be written; empty where they can."""
    artifacts = path.parent / ARTIFACTS
    if artifacts.exists() and not artifacts.is_dir():
        return f"{artifacts} is no folder that can be written"
    places = (place for place in (path.parent, path, artifacts) if place.exists())
    return next((f"{place} cannot be written" for place in places if not os.access(place, os.W_OK)), "")


def revision(path: Path) -> str | None:
    """The schema revision a database says it has; empty for tables without one, None where there are no tables, or no file."""
    if not path.exists():
        return None
    with probe_sqlite(path) as connection:
        tables = _tables(connection)
        if tables and FIRST not in tables:
            raise StoreError(f"store {path}: a database of something else than MLflow; choose another with --store")
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone() if VERSION in tables else None
    return row[0] if row else "" if tables else None


def check_initialised(path: Path) -> None:
    """StoreError for a database of another schema than this MLflow's that holds no run: it was never whole."""
    with probe_sqlite(path) as connection:
        if RUNS not in _tables(connection) or not connection.execute("SELECT count(*) FROM runs").fetchone()[0]:
            raise StoreError(
                f"store {path}: half of its tables are missing, and it holds no run: its making was cut off, or another program "
                "is at it. Repeat the command in a minute; if this is said again, delete it, or choose another with --store"
            )


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@contextlib.contextmanager
def probe_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing, but where a kill has cut off a write: sqlite then undoes that half before it reads.

    It can do so only where it may write, and until it has, every other access fails.
    """
    _check_journal(path)
    mode = "ro" if _obstacle(path) else "rw"
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=LOOK_SECONDS)
        ) as connection:
            yield connection
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise StoreError(
                f"store {path}: its last write was cut off, and nobody can read it before somebody who may write to it has undone "
                f"that half: let its owner run `fa-registry doctor`, or work on a copy of its folder, {_journal(path).name} with it"
            ) from error
        if code == sqlite3.SQLITE_NOTADB:
            raise StoreError(f"store {path}: not an SQLite database ({error}); choose another with --store") from error
        raise StoreRefusal(f"store {path}", error) from error


def _check_journal(path: Path) -> None:
    """StoreError for an undo that names a further file: sqlite deletes that file, wherever it lies, when it has undone the write.

    Only a transaction over several databases makes one, and MLflow has one. Somebody else's store may come with one all the same.
    """
    journal = _journal(path)
    if not os.path.lexists(journal):
        return
    try:
        with check_file(journal).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - len(NAMES_ANOTHER)))
            end = stream.read()
    except (UnreadableFile, FileNotFoundError) as error:
        if os.path.lexists(journal):  # else another process has ended its write
            raise StoreError(f"store {path}: {error}; no store of ours has such an undo") from error
        return
    if end == NAMES_ANOTHER:
        raise StoreError(
            f"store {path}: {journal.name} would have sqlite delete another file, which no write of MLflow's does; "
            "if the store is somebody else's, do not open it"
        )


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")
