"""The one place that opens a store: made once, by one process, as a whole or not at all; whatever it refuses is a Refusal."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
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
from fa_registry.tracking.store import VERSION, check_initialised, check_revision, check_store, revision, sqlite_path
from fa_registry.tracking.store_errors import HELD, SAYS, WAITED_FOR, StoreRefusal, refused

LOG = logging.getLogger(__name__)
T = TypeVar("T")
TRACEBACKS = "mlflow.store.db.utils"  # MLflow's logger that prints one of every refusal, which is told by our own words
NEWS = (TRACEBACKS, "alembic", "alembic.runtime.migration")  # who tells of every table of a new database
# Seconds of waiting for another process until it is said, until it is given up, and between two looks.
SILENT, PATIENCE, PAUSE = 3.0, 120.0, 0.1
# Between two looks for a server that is away, and until one that nobody has reached, or need not wait for, is given up.
LOOKS, AT_ONCE = 2.0, 5.0
FRESH = 60.0  # that a verb asks for the experiments once, not at every turn
ADVISORY = 0x66615F7265676973  # "fa_regis": PostgreSQL's locks have numbers
MAKING = ".making"


class Client:
    """MLflow's client of a store, with its methods: each raises Refusal, and waits while others hold an sqlite database.

    address: by which MLflow opens the store `uri`, another one where it can only be read. make: see store.check_store.
    waits: whether a server that is away is waited for here already; later it is, but by who is `at_once`.
    """

    def __init__(self, uri: str, make: bool, waits: bool = False):
        logging.getLogger(TRACEBACKS).addFilter(_is_news)
        self.uri = uri
        self._waits = waits
        self.address, self._client, listed = self.ask(lambda: _opened(uri, make))
        self._listed = [(time.monotonic(), listed)]  # one list, so that copies know it too
        self._waits = True

    def at_once(self) -> Client:
        """This client, which does not wait for a server that is away."""
        other = copy.copy(self)
        other._waits = False
        return other

    def experiments(self, new: bool = False) -> list[Experiment]:
        """Those that are not in the bin, as they were at most FRESH seconds ago; new: as they are."""
        when, listed = self._listed[0]
        if new or time.monotonic() - when > FRESH:
            listed = self.ask(lambda: _all_experiments(self._client))
            self._listed[0] = (time.monotonic(), listed)
        return listed

    def ask(self, question: Callable[[], T]) -> T:
        """What `question` answers, which asks this store; waited for and refused as for the methods."""
        return _present(self.uri, lambda: _patiently(self.uri, question), self._waits)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)  # of a copy that is not whole yet
        method = getattr(self._client, name)
        return functools.wraps(method)(lambda *given, **named: self.ask(lambda: method(*given, **named)))


def answering(uri: str) -> contextlib.AbstractContextManager[None]:
    """Inside, whatever MLflow, SQLAlchemy or the system refuses of the store is a Refusal."""
    return refused(f"store {uri}", MlflowException, SQLAlchemyError)


def known_revisions() -> set[str]:
    """The schema revisions the installed MLflow can read, from the names of its migration files."""
    folder = Path(mlflow.store.db_migrations.__file__).parent / "versions"
    return {path.name.split("_")[0] for path in folder.glob("*.py")}


def _opened(uri: str, make: bool) -> tuple[str, MlflowClient, list[Experiment]]:
    """The address that the store is opened by, MLflow's client, and its experiments: by asking for them it touches the tables."""
    address = check_store(uri, known_revisions(), make)
    with _quiet(), _made_once(uri, address):
        try:
            client = MlflowClient(address)
            listed = _all_experiments(client)
        except (MlflowException, SQLAlchemyError):
            path = sqlite_path(uri)
            if path and revision(path) != _newest_revision():
                check_initialised(path)
            raise
    return address, client, listed


def _all_experiments(client: MlflowClient) -> list[Experiment]:
    """All that are not in the bin."""
    found, page = [], client.search_experiments()
    while page.token:
        found += page
        page = client.search_experiments(page_token=page.token)
    return [*found, *page]


def _present(uri: str, ask: Callable[[], T], waits: bool) -> T:
    """What `ask` answers. A server that is away is asked again; asking it twice for the same does no more than once."""
    if sqlite_path(uri):
        return ask()
    begun: dict[
        str, float
    ] = {}  # kind of refusal → since when: a server that comes up may be away first and then at fault
    reported = False
    while True:
        try:
            with _of_mlflow(waits):
                if not waits and uri.startswith("http"):
                    _check_reached(uri)
                return ask()
        except StoreRefusal as refusal:
            waited = time.monotonic() - begun.setdefault(refusal.kind, time.monotonic())
            patience = WAITED_FOR.get(refusal.kind, 0.0) if waits else 0.0
            if waited > patience or not patience:
                raise
            if waited > SILENT and not reported:
                LOG.warning("store %s %s: waiting, at most %.0f seconds", uri, SAYS[refusal.kind], patience)
                reported = True
        time.sleep(LOOKS)


@contextlib.contextmanager
def _of_mlflow(waits: bool) -> Iterator[None]:
    """Inside, MLflow asks a server twice instead of eight times with minutes between, and prints no addresses; a user's wish stays.

    It is told by the environment alone. Threads that are in here together may leave it so, which does no harm.
    """
    wanted = {
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # else a request more a run, and words before those for machines
        **({} if waits else {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}),
    }
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _check_reached(uri: str) -> None:
    """Refusal where nobody listens: MLflow's own timeout, of minutes, is for answers."""
    proxy = requests.utils.select_proxy(uri, requests.utils.get_environ_proxies(uri))
    with answering(uri):
        asked = urllib3.util.parse_url(proxy or uri)
        port = asked.port or (443 if asked.scheme == "https" else 80)
        socket.create_connection(((asked.host or "").strip("[]"), port), AT_ONCE).close()


def _patiently(uri: str, ask: Callable[[], T]) -> T:
    """What `ask` answers. Where another process holds the database, nothing was done, and it is asked again."""
    answers: list[T] = []

    def answered() -> bool:
        try:
            with answering(uri):
                answers.append(ask())
        except StoreRefusal as refusal:
            if refusal.kind != HELD:
                raise
        return bool(answers)

    _wait(answered, f"store {uri}: its database", lambda: "another process that writes to it")
    return answers[0]


def _wait(attempt: Callable[[], bool], what: str, holder: Callable[[], str]) -> None:
    """Until `attempt` is true: silently at first, then with a line that names who holds `what`, and not for ever."""
    begun, reported = time.monotonic(), False
    while not attempt():
        waited = time.monotonic() - begun
        if waited > PATIENCE:
            raise StoreError(
                f"{what} has been held by {holder()} for {waited:.0f} seconds; nothing was changed. "
                "Wait for that process or end it, then repeat the command"
            )
        if waited > SILENT and not reported:
            LOG.warning("%s is held by %s: waiting, at most %.0f seconds", what, holder(), PATIENCE)
            reported = True
        time.sleep(PAUSE)


@contextlib.contextmanager
def _made_once(uri: str, address: str) -> Iterator[None]:
    """Inside, nobody else makes or migrates the store, which is no newer MLflow's; a database that was not there is.

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
    """PostgreSQL's own lock, which a transaction holds: it ends with its connection, whatever ends that.

    Raises StoreError for a database of a newer MLflow, which MLflow would have its owner upgrade.
    """
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    wanted = sqlalchemy.text("SELECT pg_try_advisory_xact_lock(:number)").bindparams(number=ADVISORY)
    with engine.begin() as connection:
        _wait(lambda: connection.execute(wanted).scalar_one(), f"store {uri}", lambda: "another process that opens it")
        if sqlalchemy.inspect(connection).has_table(VERSION):
            found = connection.execute(sqlalchemy.text(f"SELECT version_num FROM {VERSION}")).scalar()
            check_revision(uri, found, known_revisions())
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
