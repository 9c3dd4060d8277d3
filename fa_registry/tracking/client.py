"""The one place that opens a store: made once, by one process, as a whole or not at all; whatever it refuses is a Refusal."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import mlflow.store.db_migrations
import sqlalchemy
from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
from sqlalchemy.exc import SQLAlchemyError

from fa_registry.errors import StoreError
from fa_registry.tracking.refusals import HELD, Refusal, refused
from fa_registry.tracking.store import check_begun, check_store, revision, sqlite_path

LOG = logging.getLogger(__name__)
T = TypeVar("T")
TRACEBACKS = "mlflow.store.db.utils"  # MLflow's logger that prints one of every refusal, which is told by our own words
NEWS = (TRACEBACKS, "alembic", "alembic.runtime.migration")  # who tells of every table of a new database
# Seconds of waiting for another process until it is said, until it is given up, and between two looks.
SILENT, PATIENCE, PAUSE = 3.0, 120.0, 0.1
ADVISORY = 0x66615F7265676973  # "fa_regis": PostgreSQL's locks have numbers
MAKING = ".making"


class Client:
    """MLflow's client of a store, with its methods: each raises Refusal, and waits while others hold an sqlite database.

    address: by which MLflow opens the store `uri`, another one where it can only be read. make: see store.check_store.
    """

    def __init__(self, uri: str, make: bool):
        logging.getLogger(TRACEBACKS).addFilter(_is_news)
        self.uri = uri
        self.address, self._client = _patiently(uri, lambda: _opened(uri, make))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return functools.wraps(method)(lambda *given, **named: _patiently(self.uri, lambda: method(*given, **named)))


def answering(uri: str) -> contextlib.AbstractContextManager[None]:
    """Inside, whatever MLflow, SQLAlchemy or the system refuses of the store is a Refusal."""
    return refused(f"store {uri}", MlflowException, SQLAlchemyError)


def known_revisions() -> set[str]:
    """The schema revisions the installed MLflow can read, from the names of its migration files."""
    folder = Path(mlflow.store.db_migrations.__file__).parent / "versions"
    return {path.name.split("_")[0] for path in folder.glob("*.py")}


def _opened(uri: str, make: bool) -> tuple[str, MlflowClient]:
    """The address that the store is opened by, and MLflow's client, which has touched the tables."""
    address = check_store(uri, known_revisions(), make)
    with _quiet(), _made_once(uri, address):
        try:
            client = MlflowClient(address)
            client.search_experiments(max_results=1)
        except (MlflowException, SQLAlchemyError):
            path = sqlite_path(uri)
            if path and revision(path) != _newest_revision():
                check_begun(path)
            raise
    return address, client


def _patiently(uri: str, ask: Callable[[], T]) -> T:
    """What `ask` answers. Where another process holds the database, nothing was done, and it is asked again."""
    answers: list[T] = []

    def answered() -> bool:
        try:
            with answering(uri):
                answers.append(ask())
        except Refusal as refusal:
            if refusal.kind != HELD:
                raise
        return bool(answers)

    _wait(answered, f"store {uri}: its database", lambda: "another process that writes to it")
    return answers[0]


def _wait(attempt: Callable[[], bool], what: str, holder: Callable[[], str]) -> None:
    """Until `attempt` is true: silently at first, then with a line that names who holds `what`, and not for ever."""
    begun, told = time.monotonic(), False
    while not attempt():
        waited = time.monotonic() - begun
        if waited > PATIENCE:
            raise StoreError(
                f"{what} has been held by {holder()} for {waited:.0f} seconds; nothing was changed. "
                "Wait for that process or end it, then repeat the command"
            )
        if waited > SILENT and not told:
            LOG.warning("%s is held by %s: waiting, at most %.0f seconds", what, holder(), PATIENCE)
            told = True
        time.sleep(PAUSE)


@contextlib.contextmanager
def _made_once(uri: str, address: str) -> Iterator[None]:
    """Inside, nobody else makes or migrates the store; a database that was not there is.

    Of four processes that made one together three failed, and a kill in between left tables that no MLflow could finish.
    """
    path = sqlite_path(address)
    with contextlib.ExitStack() as alone:
        if path is None and sqlalchemy.make_url(address).get_backend_name() == "postgresql":
            alone.enter_context(_advisory_lock(uri))
        elif path is not None and revision(path) != _newest_revision():
            alone.enter_context(_file_lock(path))
            if revision(path) is None:
                _make(path)
        yield


@contextlib.contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """The lock beside a database, with its holder's name in it."""
    place = Path(f"{path}.lock")
    lock = FileLock(place)

    def acquired() -> bool:
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=0)
        return lock.is_locked

    _wait(acquired, f"store {path}: {place.name}", lambda: place.read_text(errors="replace")[:200] or "another process")
    try:
        place.write_text(f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _advisory_lock(uri: str) -> Iterator[None]:
    """PostgreSQL's own lock, which a transaction holds: it ends with its connection, whatever ends that."""
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    wanted = sqlalchemy.text("SELECT pg_try_advisory_xact_lock(:number)").bindparams(number=ADVISORY)
    with engine.begin() as connection:
        _wait(lambda: connection.execute(wanted).scalar_one(), f"store {uri}", lambda: "another process that opens it")
        yield


def _make(path: Path) -> None:
    """In a file of another name, which is moved into place once it is whole and on the disk."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # a second, which a server's client saves

    beginning = f".{path.name}{MAKING}"
    temporary = path.with_name(f"{beginning}.{os.getpid()}")
    _clear(path.parent, beginning)  # of makers that were killed: who holds the lock makes alone
    try:
        store = SqlAlchemyStore(f"sqlite:///{temporary}", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH)
        store.engine.dispose()  # no connection may know it by this name later on
        _to_disk(temporary)
        if revision(path) is None:  # a program that knows no lock of ours may have been quicker
            os.replace(temporary, path)
            _to_disk(path.parent)
    finally:
        _clear(path.parent, beginning)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clear(folder: Path, beginning: str) -> None:
    for left in folder.iterdir():
        if left.name.startswith(beginning):
            left.unlink()


@functools.cache
def _newest_revision() -> str:
    from mlflow.store.db.utils import _get_latest_schema_revision  # as `mlflow db upgrade` asks for it

    return _get_latest_schema_revision()


def _is_news(record: logging.LogRecord) -> bool:
    return not record.exc_info


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the table-by-table news of a new database; warnings still come through."""
    loggers = [logging.getLogger(name) for name in NEWS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
