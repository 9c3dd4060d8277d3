"""Which store, and whether it can be used: known before MLflow opens it. client.py opens it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from fa_registry.errors import StoreError
from fa_registry.tracking.refusals import refused

DEFAULT = "sqlite:///mlflow.db"
SQLITE = "sqlite:///"
ARTIFACTS = "mlartifacts"  # beside the database
VERSION, FIRST, RUNS = (
    "alembic_version",
    "experiments",
    "runs",
)  # tables of MLflow's: its schema's release, its first, its runs
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
    if not path.exists() and _journal(path).exists():
        raise StoreError(
            f"store {uri}: there is {_journal(path).name}, the undo of a write that was cut off, but not its database; "
            "put the database back beside it, or delete it if the database is gone"
        )
    found = revision(path)
    if found is None and not make:
        raise StoreError(f"store {uri}: there is none yet; `fa-registry study` makes one with its first run")
    if found and found not in known_revisions:
        raise StoreError(
            f"store {uri}: its schema {found!r} is unknown to this MLflow; a newer MLflow made it. "
            "Use that version, or start a new store with --store"
        )
    if make:
        check_writable(uri)
    return _reading(path) if _obstacle(path) else uri


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
    with _looked_at(path) as connection:
        tables = _tables(connection)
        if tables and FIRST not in tables:
            raise StoreError(f"store {path}: a database of something else than MLflow; choose another with --store")
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone() if VERSION in tables else None
    return row[0] if row else "" if tables else None


def check_begun(path: Path) -> None:
    """StoreError for a database of another schema than this MLflow's that holds no run: its making was cut off."""
    with _looked_at(path) as connection:
        if RUNS not in _tables(connection) or not connection.execute("SELECT count(*) FROM runs").fetchone()[0]:
            raise StoreError(
                f"store {path}: its making was cut off, half of its tables are missing, and it holds no run; "
                "delete it, or choose another with --store, then repeat the command"
            )


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@contextlib.contextmanager
def _looked_at(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing, but where a kill has cut off a write: sqlite then undoes that half before it reads.

    It can do so only where it may write, and until it has, every other access fails.
    """
    mode = "ro" if _obstacle(path) else "rw"
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=LOOK_SECONDS)
        ) as connection:
            yield connection
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise StoreError(
                f"store {path}: its last write was cut off, and nobody can read it before somebody who may write to it has undone "
                f"that half: let its owner run `fa-registry list`, or work on a copy of its folder, {_journal(path).name} with it"
            ) from error
        with refused(f"store {path}"):
            raise
    except sqlite3.DatabaseError as error:
        raise StoreError(f"store {path}: not an SQLite database ({error}); choose another with --store") from error


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


def local_folder(uri: str, store: str) -> Path | None:
    """The folder of an artifact address of the store; None where that is no file's. It may be another machine's, or not exist yet.

    A database holds the addresses as they were where it was made. In a copy of its folder they lead to the artifacts of the
    original, or nowhere: what lies beside the database is meant.
    """
    if not uri.startswith(("file:///", "/")):
        return None
    recorded, database = Path(unquote(uri.removeprefix("file://"))), sqlite_path(store)
    _, artifacts, rest = str(recorded).rpartition(f"/{ARTIFACTS}/")
    if database is None or not artifacts:
        return recorded
    folder = database.parent / ARTIFACTS
    return folder / rest if (folder / Path(rest).parts[0]).is_dir() else recorded
