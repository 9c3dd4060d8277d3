"""Checks of a store's address and database before MLflow opens the store."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from fa_registry.errors import StoreError
from fa_registry.safe_files import UnreadableFile, check_file
from fa_registry.text_safety import without_password
from fa_registry.tracking.store_errors import EXPECTED_STORE, StoreRefusal

DEFAULT = "sqlite:///mlflow.db"
SQLITE = "sqlite:///"
ARTIFACTS = "mlartifacts"  # next to the database
VERSION, FIRST, RUNS = "alembic_version", "experiments", "runs"  # tables: revision of the schema, first table, runs
NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")  # last bytes of an sqlite journal that names another journal
LOOK_SECONDS = 1.0  # time for another process to finish writing; the code that opens the store retries


def resolve_uri(uri: str = "") -> str:
    """Return the URI of the store to use.

    The path of an sqlite store becomes absolute, because the process may change its working directory later.

    Args:
        uri: URI of the store. If `uri` is empty, use the environment variable MLFLOW_TRACKING_URI; if the variable is also empty,
            use mlflow.db in the current folder.

    Raises:
        StoreError: the URI is that of MLflow's file store, which is not supported.
    """
    resolved_uri = uri or os.environ.get("MLFLOW_TRACKING_URI", "") or DEFAULT
    if resolved_uri.startswith("file:") or "://" not in resolved_uri:
        raise StoreError(f"store {resolved_uri!r}: {EXPECTED_STORE}; MLflow's file store is no longer supported")
    path = sqlite_path(resolved_uri)
    return f"{SQLITE}{path}" if path else resolved_uri


def command_on(command: str, uri: str) -> str:
    """Return a command for messages, with --store if `uri` is not the default store.

    For example, `list runs` gives `fa-registry list runs`.
    """
    default = ""
    with contextlib.suppress(StoreError):  # the default store is not supported
        default = resolve_uri()
    store = f" --store {shlex.quote(without_password(uri))}" if "://" in uri and uri != default else ""
    return f"fa-registry {command}{store}"


def sqlite_path(uri: str) -> Path | None:
    """Return the database file of an sqlite URI, or None for any other store."""
    return Path(uri.removeprefix(SQLITE)).resolve() if uri.startswith(SQLITE) else None


def sqlite_address(path: Path, mode: str) -> str:
    """Return the address of a database file with sqlite's mode `ro` (writes no files) or `rw`.

    The address contains the driver name, because MLflow creates folders for addresses that start with `sqlite:///`. The path is
    quoted twice: once for sqlite and once for SQLAlchemy.
    """
    return f"sqlite+pysqlite:///file:{quote(quote(os.fsencode(path)))}?mode={mode}&uri=true"


def check_store(uri: str, known_revisions: set[str], make: bool = True) -> str:
    """Check a store before it is opened.

    Args:
        known_revisions: schema revisions that the installed MLflow can read.
        make: True if the caller writes to the store and creates a missing store. An existing store must then be writable.

    Returns:
        The address with which to open the store. This address differs from `uri` if the store is read-only.

    Raises:
        StoreError: the store is missing or not writable (see `make`), or another program or a newer MLflow created it.
    """
    path = sqlite_path(uri)
    if path is None:
        return uri
    if not path.parent.is_dir():
        found = "is not a folder;" if path.parent.exists() else "does not exist; create this folder, or"
        raise StoreError(f"store {uri}: the folder {path.parent} {found} choose another store with --store")
    if path.exists() and not path.is_file():
        raise StoreError(f"store {uri}: {path} is not a file; choose another store with --store")
    if not path.exists() and _journal(path).exists():
        raise StoreError(
            f"store {uri}: the rollback journal {_journal(path).name} of an interrupted write exists, but its database is missing. "
            "Restore the database next to the journal, or delete the journal if the database is lost"
        )
    current_revision = revision(path)
    if current_revision is None and not make:
        raise StoreError(
            f"store {uri} does not exist yet; `fa-registry study NAME --store {shlex.quote(uri)}` creates the store"
        )
    check_revision(uri, current_revision, known_revisions)
    if make:
        check_writable(uri)
    return sqlite_address(path, "ro") if _obstacle(path) else uri


def check_revision(uri: str, current_revision: str | None, known_revisions: set[str]) -> None:
    """Raise StoreError if a newer MLflow created the database schema."""
    if current_revision and current_revision not in known_revisions:
        raise StoreError(
            f"store {uri}: the installed MLflow cannot read the schema {current_revision!r}, because a newer MLflow created it. "
            "Install that version of MLflow, or choose a new store with --store"
        )


def check_writable(uri: str) -> None:
    """Raise StoreError if an sqlite store is read-only. Do not check other stores."""
    path = sqlite_path(uri)
    obstacle = path and _obstacle(path)
    if obstacle:
        raise StoreError(
            f"store {uri}: {obstacle}; choose another store with --store, or use a copy of the store's folder"
        )


def _obstacle(path: Path) -> str:
    """Return why a database or its artifacts cannot be written; empty if both can be written."""
    artifacts = path.parent / ARTIFACTS
    if artifacts.exists() and not artifacts.is_dir():
        return f"{artifacts} is not a folder"
    paths = (existing_path for existing_path in (path.parent, path, artifacts) if existing_path.exists())
    return next(
        (f"{existing_path} cannot be written" for existing_path in paths if not os.access(existing_path, os.W_OK)), ""
    )


def revision(path: Path) -> str | None:
    """Return the schema revision of an sqlite database.

    Returns:
        The revision; an empty string if the database has tables but no revision; None if the database has no tables or does not
        exist.

    Raises:
        StoreError: the database is not an MLflow store.
    """
    if not path.exists():
        return None
    with probe_sqlite(path) as connection:
        tables = _tables(connection)
        if tables and FIRST not in tables:
            raise StoreError(
                f"store {path}: expected an MLflow database, found a database of another program; choose another store with --store"
            )
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone() if VERSION in tables else None
    return row[0] if row else "" if tables else None


def check_initialised(path: Path) -> None:
    """Raise StoreError if a database that MLflow could not open has no runs: its creation is incomplete."""
    with probe_sqlite(path) as connection:
        if RUNS not in _tables(connection) or not connection.execute("SELECT count(*) FROM runs").fetchone()[0]:
            raise StoreError(
                f"store {path}: the database is incomplete and contains no runs: its creation was interrupted or is still running. "
                "Repeat the command in a minute; if the error persists, delete the file, or choose another store with --store"
            )


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@contextlib.contextmanager
def probe_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an sqlite connection for reading.

    If the last write to the database was interrupted, sqlite first rolls it back. This needs write access.

    Raises:
        StoreError: the database cannot be read.
    """
    _check_journal(path)
    mode = "ro" if _obstacle(path) else "rw"
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode={mode}", uri=True, timeout=LOOK_SECONDS)
        ) as connection:
            yield connection
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise StoreError(
                f"store {path}: its last write was interrupted. A user with write access must roll it back before the store can be "
                f"read: ask the owner to run `fa-registry doctor`, or use a copy of the store's folder that includes "
                f"{_journal(path).name}"
            ) from error
        if code == sqlite3.SQLITE_NOTADB:
            raise StoreError(
                f"store {path}: expected an SQLite database ({error}); choose another store with --store"
            ) from error
        raise StoreRefusal(f"store {path}", error) from error


def _check_journal(path: Path) -> None:
    """Raise StoreError if sqlite would delete another file because of the journal.

    An untrusted store may contain such a journal. MLflow never writes such a journal.
    """
    journal = _journal(path)
    if not os.path.lexists(journal):
        return
    try:
        with check_file(journal).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - len(NAMES_ANOTHER)))
            end = stream.read()
    except (UnreadableFile, FileNotFoundError) as error:
        if os.path.lexists(journal):  # otherwise another process has finished its write
            raise StoreError(f"store {path}: {error}; fa_registry never writes such a journal") from error
        return
    if end == NAMES_ANOTHER:
        raise StoreError(
            f"store {path}: {journal.name} would make sqlite delete another file. MLflow never writes such a journal. "
            "If you did not create this store, do not open it"
        )


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")
