"""Opening a store: which one, whether it can be used, and creating it once."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from fa_registry.errors import StoreError

DEFAULT = "sqlite:///mlflow.db"
SQLITE = "sqlite:///"
ARTIFACTS = "mlartifacts"  # beside the database


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


def check_store(uri: str, known_revisions: set[str]) -> None:
    """Raise StoreError when a sqlite store cannot be used: unwritable, not a database, or made by another MLflow."""
    path = sqlite_path(uri)
    if path is None:
        return
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(f"store {uri}: the folder {folder} does not exist; create it or choose another with --store")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise StoreError(f"store {uri}: {path} cannot be written; choose another with --store")
    artifacts = folder / ARTIFACTS
    if artifacts.exists() and not (artifacts.is_dir() and os.access(artifacts, os.W_OK)):
        raise StoreError(
            f"store {uri}: {artifacts} is no folder that can be written; move it, or choose another --store"
        )
    if path.exists() and path.stat().st_size:
        revision = _revision(path)
        if revision is not None and revision not in known_revisions:
            raise StoreError(
                f"store {uri}: its schema {revision!r} is unknown to this MLflow; a newer MLflow made it. "
                "Use that version, or start a new store with --store"
            )


def _revision(path: Path) -> str | None:
    """The schema revision a database says it has; None for one without MLflow's tables."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise StoreError(f"store {path}: cannot be read: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"store {path}: not an SQLite database ({error}); choose another with --store") from error
    return row[0] if row else None


@contextlib.contextmanager
def creation_lock(uri: str) -> Iterator[None]:
    """Hold the lock under which a new database is made: four processes creating one together crashed three of them."""
    path = sqlite_path(uri)
    if path is None:
        yield
        return
    with FileLock(f"{path}.lock"):
        yield


@contextlib.contextmanager
def quiet_migrations() -> Iterator[None]:
    """Silence the table-by-table news of a new database; warnings still come through."""
    loggers = [logging.getLogger(name) for name in ("mlflow.store.db.utils", "alembic", "alembic.runtime.migration")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
