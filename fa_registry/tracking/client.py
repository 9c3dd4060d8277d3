"""MLflow client that opens or creates a store.

Only one process creates a store. An interrupted creation leaves no incomplete store.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import mlflow.store.db_migrations
import requests
import sqlalchemy
import urllib3
from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.entities import Experiment
from mlflow.exceptions import MlflowException
from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
from sqlalchemy.exc import SQLAlchemyError

from fa_registry.errors import StoreError
from fa_registry.tracking.base import RunUpdate
from fa_registry.tracking.store import (
    VERSION,
    check_initialised,
    check_revision,
    check_store,
    revision,
    sqlite_address,
    sqlite_path,
)
from fa_registry.tracking.store_errors import HELD, SAYS, WAITED_FOR, StoreRefusal, refused

LOG = logging.getLogger(__name__)
T = TypeVar("T")
# MLflow's logger that prints a traceback of every error; the message of StoreRefusal suffices.
TRACEBACKS = "mlflow.store.db.utils"
NEWS = (TRACEBACKS, "alembic", "alembic.runtime.migration")  # loggers that print every table of a new database
# Seconds of waiting for another process: until the wait is logged, until an error is raised, and between two attempts.
SILENT, PATIENCE, PAUSE = 3.0, 120.0, 0.1
# Seconds between two attempts to reach a server, and the time limit of an attempt that is not repeated.
INTERVAL, AT_ONCE = 2.0, 5.0
FRESH = 60.0  # seconds for which a list of experiments is reused, so a command requests the list once
ADVISORY = 0x66615F7265676973  # "fa_regis" as a number, because a number identifies a PostgreSQL lock
MAKING = ".making"


class Client:
    """Wrapper of MLflow's client, with the same methods.

    Each method waits while another process locks an sqlite database. A method raises StoreRefusal if the store reports an error.

    Args:
        make: whether to create a missing store.
        waits: whether the constructor waits for an unreachable server. Later calls always wait, unless the client is a copy
            from `at_once`.

    Attributes:
        address: address with which MLflow opens the store. This address differs from `uri` if the store is read-only.
    """

    def __init__(self, uri: str, make: bool, waits: bool = False):
        logging.getLogger(TRACEBACKS).addFilter(lambda record: not record.exc_info)
        self.uri = uri
        self._waits = waits
        self.address, self._client, listed = self.ask(lambda: _opened(uri, make))
        self._listed = [(time.monotonic(), listed)]  # the copies made by `at_once` share this list
        self._waits = True

    def at_once(self) -> Client:
        """Return a copy of this client that does not wait for an unreachable server."""
        client = copy.copy(self)
        client._waits = False
        return client

    def experiments(self, refresh: bool = False) -> list[Experiment]:
        """Return all experiments except deleted experiments.

        The list is at most 60 seconds old, or new if `refresh` is true.
        """
        listed_at, listed = self._listed[0]
        if refresh or time.monotonic() - listed_at > FRESH:
            listed = self.ask(lambda: _all_experiments(self._client))
            self._listed[0] = (time.monotonic(), listed)
        return listed

    def change_runs(self, changes: Sequence[RunUpdate]) -> None:
        """Change several runs of an sqlite database in one transaction."""
        from fa_registry.tracking.bulk_changes import change_runs  # imports MLflow's database models

        self.ask(lambda: change_runs(self._client._tracking_client.store, changes))

    def values_everywhere(self, table: str, name: str) -> dict[str, str]:
        """Return one tag or parameter of all runs of an sqlite database: run id → value."""
        from fa_registry.tracking.bulk_changes import values_everywhere

        return self.ask(lambda: values_everywhere(self._client._tracking_client.store, table, name))

    def ask(self, query: Callable[[], T]) -> T:
        """Call `query`, which queries this store, and return its result.

        Wait for a locked database or an unreachable server, and convert errors to StoreRefusal.
        """
        return _present(self.uri, lambda: _patiently(self.uri, query), self._waits)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)  # the module copy requests such attributes
        method = getattr(self._client, name)
        return functools.wraps(method)(lambda *arguments, **keywords: self.ask(lambda: method(*arguments, **keywords)))


def answering(uri: str) -> contextlib.AbstractContextManager[None]:
    """Convert errors of MLflow, SQLAlchemy and the operating system to StoreRefusal."""
    return refused(f"store {uri}", MlflowException, SQLAlchemyError)


def known_revisions() -> set[str]:
    """Return the database schema revisions that the installed MLflow can read."""
    folder = Path(mlflow.store.db_migrations.__file__).parent / "versions"
    return {path.name.split("_")[0] for path in folder.glob("*.py")}


def _opened(uri: str, make: bool) -> tuple[str, MlflowClient, list[Experiment]]:
    """Open a store; return its address, MLflow's client and the experiments."""
    address = check_store(uri, known_revisions(), make)
    with _quiet(), _made_once(uri, address):
        try:
            client = MlflowClient(address)
            listed = _all_experiments(client)
        except (MlflowException, SQLAlchemyError):
            path = sqlite_path(uri)
            if path and revision(path) != newest_revision():
                check_initialised(path)
            raise
    return address, client, listed


def _all_experiments(client: MlflowClient) -> list[Experiment]:
    experiments, page = [], client.search_experiments()
    while page.token:
        experiments += page
        page = client.search_experiments(page_token=page.token)
    return [*experiments, *page]


def _present(uri: str, query: Callable[[], T], waits: bool) -> T:
    """Call the idempotent function `query`; repeat the call while no server is reachable."""
    if sqlite_path(uri):
        return query()
    # kind of refusal → time of its first occurrence; a starting server is unreachable, and may later return errors
    refused_since: dict[str, float] = {}
    reported = False
    while True:
        try:
            with _of_mlflow(waits):
                if not waits and uri.startswith("http"):
                    _check_reached(uri)
                return query()
        except StoreRefusal as refusal:
            waited = time.monotonic() - refused_since.setdefault(refusal.kind, time.monotonic())
            patience = WAITED_FOR.get(refusal.kind, 0.0) if waits else 0.0
            if waited > patience or not patience:
                raise
            if waited > SILENT and not reported:
                LOG.warning("store %s %s; waiting for at most %.0f seconds", uri, SAYS[refusal.kind], patience)
                reported = True
        time.sleep(INTERVAL)


@contextlib.contextmanager
def _of_mlflow(waits: bool) -> Iterator[None]:
    """Limit MLflow to two requests per call within the context.

    The function sets environment variables. By default, MLflow repeats a failed request for minutes. Variables that the user
    has set do not change. If two threads use the context at the same time, the variables may stay set, which does no harm.
    """
    settings = {
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # saves a request per run, and keeps JSON output clean
        # By default, MLflow sends a client past its server to the bucket, whose address only the server may know.
        "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD": "false",
        "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "false",
        **({} if waits else {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}),
    }
    added_settings = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added_settings)
    try:
        yield
    finally:
        for name in added_settings:
            os.environ.pop(name, None)


def _check_reached(uri: str) -> None:
    """Raise StoreRefusal if no server accepts connections at `uri`."""
    proxy = requests.utils.select_proxy(uri, requests.utils.get_environ_proxies(uri))
    with answering(uri):
        parsed_url = urllib3.util.parse_url(proxy or uri)
        port = parsed_url.port or (443 if parsed_url.scheme == "https" else 80)
        socket.create_connection(((parsed_url.host or "").strip("[]"), port), AT_ONCE).close()


def _patiently(uri: str, query: Callable[[], T]) -> T:
    """Call `query` until no other process locks the database; return its result."""
    results: list[T] = []

    def answered() -> bool:
        try:
            with answering(uri):
                results.append(query())
        except StoreRefusal as refusal:
            if refusal.kind != HELD:
                raise
        return bool(results)

    _wait(answered, f"store {uri}: the database", lambda: "another process that writes to the store")
    return results[0]


def _wait(attempt: Callable[[], bool], subject: str, holder: Callable[[], str]) -> None:
    """Call `attempt` until the result is True. Raise StoreError after 120 seconds."""
    start, reported = time.monotonic(), False
    while not attempt():
        waited = time.monotonic() - start
        if waited > PATIENCE:
            raise StoreError(
                f"{subject} has been locked by {holder()} for {waited:.0f} seconds; nothing was changed. "
                "Wait for that process or end it, then repeat the command"
            )
        if waited > SILENT and not reported:
            LOG.warning("%s is locked by %s; waiting for at most %.0f seconds", subject, holder(), PATIENCE)
            reported = True
        time.sleep(PAUSE)


@contextlib.contextmanager
def _made_once(uri: str, address: str) -> Iterator[None]:
    """Lock the store while it is created or migrated; create a missing database.

    Without the lock, several processes that create one store at the same time fail, and a killed process leaves incomplete tables.
    """
    path = sqlite_path(address)
    with contextlib.ExitStack() as lock_stack:
        if path is None and sqlalchemy.make_url(address).get_backend_name() == "postgresql":
            lock_stack.enter_context(_advisory_lock(uri))
        elif path is not None and revision(path) != newest_revision():
            lock_stack.enter_context(_file_lock(path))
            if revision(path) is None:
                _make(path)
        yield


@contextlib.contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    lock_path = Path(f"{path}.lock")
    lock = FileLock(lock_path)

    def acquired() -> bool:
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=0)
        return lock.is_locked

    _wait(
        acquired,
        f"store {path}: {lock_path.name}",
        lambda: lock_path.read_text(errors="replace")[:200] or "another process",
    )
    try:
        lock_path.write_text(f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _advisory_lock(uri: str) -> Iterator[None]:
    """Acquire a PostgreSQL advisory lock, which ends with the connection.

    Raise StoreError if a newer MLflow created the database.
    """
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    lock_query = sqlalchemy.text("SELECT pg_try_advisory_xact_lock(:number)").bindparams(number=ADVISORY)
    with engine.begin() as connection:
        _wait(
            lambda: connection.execute(lock_query).scalar_one(),
            f"store {uri}",
            lambda: "another process that opens the store",
        )
        if sqlalchemy.inspect(connection).has_table(VERSION):
            found_revision = connection.execute(sqlalchemy.text(f"SELECT version_num FROM {VERSION}")).scalar()
            check_revision(uri, found_revision, known_revisions())
        yield


def _make(path: Path) -> None:
    """Create the database under a temporary name, write it to disk, and rename it."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # takes a second; servers do not need it

    prefix = f".{path.name}{MAKING}"
    temporary = path.with_name(f"{prefix}.{os.getpid()}")
    _clear(path.parent, prefix)  # stale files of killed processes; this process has the lock
    try:
        temporary.touch()  # the mode of a file that sqlite creates does not depend on a umask such as 002
        # MLflow cannot write a path with undecodable bytes to its log
        address = f"sqlite:///{temporary}" if str(temporary).isprintable() else sqlite_address(temporary, "rw")
        store = SqlAlchemyStore(address, DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH)
        store.engine.dispose()  # later connections must not use the temporary name
        _to_disk(temporary)
        if revision(path) is None:  # a program that does not use this lock may have created the database
            os.replace(temporary, path)
            _to_disk(path.parent)
    finally:
        _clear(path.parent, prefix)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clear(folder: Path, prefix: str) -> None:
    for stale_file in folder.iterdir():
        if stale_file.name.startswith(prefix):
            stale_file.unlink()


@functools.cache
def newest_revision() -> str:
    """Return the database schema revision that the installed MLflow creates; finding it takes 50 ms."""
    from mlflow.store.db.utils import _get_latest_schema_revision  # the function that `mlflow db upgrade` uses

    return _get_latest_schema_revision()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log messages about each new table. Warnings are still logged."""
    loggers = [logging.getLogger(name) for name in NEWS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
