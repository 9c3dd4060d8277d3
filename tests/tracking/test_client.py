"""Opening a store: after a kill, in the same moment as others, while others hold it; and what it says when it refuses."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import struct
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException, RestException
from mlflow.store.tracking import sqlalchemy_store
from mlflow.store.tracking.dbmodels import initial_models
from mlflow.store.tracking.dbmodels.models import SqlDataset
from mlflow.utils.rest_utils import verify_rest_response
from requests.exceptions import HTTPError, RetryError
from sqlalchemy import create_engine

from fa_registry.errors import StoreError
from fa_registry.tracking import client
from fa_registry.tracking.base import DatasetReference
from fa_registry.tracking.client import Client
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.store_errors import (
    AWAY,
    BARRED,
    DAMAGED,
    FAILING,
    FAULTY,
    FORBIDDEN,
    FULL,
    HELD,
    KEYLESS,
    LACKING,
    UNKNOWN,
    StoreRefusal,
)
from tests.helpers.stores import cut_off_a_write


@pytest.fixture
def database(tmp_path, empty_store) -> Path:
    return Path(shutil.copy(empty_store, tmp_path / "mlflow.db"))


@pytest.mark.parametrize("make", [True, False])
def test_a_write_that_a_kill_cut_off_is_undone_by_whatever_opens_the_store(database, make):
    before = database.read_bytes()
    cut_off_a_write(database)
    assert database.read_bytes() != before
    tracker = MlflowTracker(f"sqlite:///{database}", make=make)
    assert database.read_bytes() == before and not Path(f"{database}-journal").exists()
    assert tracker.create("run", {}, {})


def test_the_error_for_a_read_only_store_whose_last_write_was_cut_off_says_who_can_undo_it(database, monkeypatch):
    cut_off_a_write(database)
    before = database.read_bytes()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere, so the answer is given here
    with pytest.raises(
        StoreError,
        match=r"interrupted.* ask the owner to run .*a copy of the store's folder that includes mlflow\.db-journal",
    ):
        MlflowTracker(f"sqlite:///{database}", make=False)
    assert database.read_bytes() == before


def naming(journal: Path, name: bytes) -> None:
    """Let this undo of a write name a further file, as sqlite does for a write to several databases."""
    content = journal.read_bytes()
    (page,) = struct.unpack(">I", content[24:28])
    total = sum(byte - 256 * (byte > 127) for byte in name) % 2**32
    number = struct.pack(">I", 2**30 // page + 1)
    journal.write_bytes(
        content + number + name + struct.pack(">II", len(name), total) + bytes.fromhex("d9d505f920a163d7")
    )


def test_an_untrusted_store_deletes_no_file(database, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("the only copy of something")
    cut_off_a_write(database)
    shutil.copytree(tmp_path, tmp_path / "other")
    for folder in (tmp_path, tmp_path / "other"):
        naming(folder / "mlflow.db-journal", str(mine).encode())
    for make in (True, False):
        with pytest.raises(StoreError, match="would make sqlite delete another file"):
            MlflowTracker(f"sqlite:///{database}", make=make)
    assert mine.exists()
    with closing(sqlite3.connect(tmp_path / "other" / "mlflow.db")) as connection:  # the danger is real
        connection.execute("SELECT * FROM experiments")
    assert not mine.exists()


@pytest.mark.parametrize("name", ["mlflow.db", "mlflow.db-journal"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_database_or_an_undo_that_is_no_file(database, name, make):
    path = database.with_name(name)
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(StoreError, match="is not a file|is no regular file|is not a regular file|is a link"):
        MlflowTracker(f"sqlite:///{database}", make=False)


def test_a_damaged_database_is_reported_as_one(database):
    content = bytearray(database.read_bytes())
    content[100:4096] = b"x" * 3996  # the schema, behind a header that is whole
    database.write_bytes(content)
    with pytest.raises(StoreError, match=r"malformed; the database is damaged\. Copy its folder first"):
        MlflowTracker(f"sqlite:///{database}")


def test_a_journal_without_its_database_is_not_taken_for_a_new_ones(tmp_path):
    (tmp_path / "mlflow.db-journal").write_bytes(b"undo")
    with pytest.raises(StoreError, match="but its database is missing"):
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db-journal"]


@pytest.fixture
def made_at_once(monkeypatch, empty_store) -> None:
    """MLflow's tables of a new database are a copy of the session's; making them takes seconds."""

    def store(uri: str, artifacts: str) -> SimpleNamespace:
        shutil.copy(empty_store, uri.removeprefix("sqlite:///"))
        return SimpleNamespace(engine=SimpleNamespace(dispose=lambda: None))

    monkeypatch.setattr(sqlalchemy_store, "SqlAlchemyStore", store)


def test_a_new_database_has_its_name_once_it_is_whole_and_a_maker_that_was_killed_leaves_nothing(
    tmp_path, monkeypatch, made_at_once, empty_store
):
    database, genuine = tmp_path / "mlflow.db", os.replace
    left = [tmp_path / f".mlflow.db.making.{end}" for end in ("7", "7-journal")]
    for path in left:
        path.touch()
    seen = []

    def replace(source: Path, target: Path) -> None:
        seen.append((target, target.exists(), client.revision(source)))
        genuine(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with client._made_once(f"sqlite:///{database}", f"sqlite:///{database}"):
        pass
    assert seen == [(database, False, client.revision(empty_store))]
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "mlflow.db.lock"}


def test_a_database_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch, made_at_once):
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(
        StoreError, match="No space left on device; data that were written before are kept. Free some disk space"
    ):
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db.lock"}


def half_made(path: Path) -> None:
    """As a kill left it: first tables, and a first change of them that no MLflow can make twice."""
    engine = create_engine(f"sqlite:///{path}")
    initial_models.Base.metadata.create_all(engine)
    engine.dispose()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE metrics ADD COLUMN step BIGINT DEFAULT 0 NOT NULL")


def test_a_database_that_was_half_made_is_named_as_one(tmp_path):
    half_made(tmp_path / "mlflow.db")
    with pytest.raises(
        StoreError, match="the database is incomplete and contains no runs: its creation was interrupted"
    ):
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection, connection:
        connection.execute("INSERT INTO runs (run_uuid) VALUES ('a')")
    with pytest.raises(StoreError, match="duplicate column"):  # no message says to delete a run
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")


def in_between(monkeypatch, place, name, act) -> None:
    """`act` once, when `place.name` is first called, as a process that is quicker: what was looked up before is no longer so."""
    genuine, acts = getattr(place, name), [act]

    def call(*given, **named):
        answer = genuine(*given, **named)
        if acts:
            acts.pop()()
        return answer

    monkeypatch.setattr(place, name, call)


def test_two_runs_that_record_a_new_data_set_in_the_same_moment(database, monkeypatch):
    tracker, other = (MlflowTracker(f"sqlite:///{database}") for _ in range(2))
    runs = [tracker.create("run", {}, {}) for _ in range(2)]
    reference = DatasetReference("digits", "a" * 64, "sklearn", "training")
    in_between(monkeypatch, SqlDataset, "__init__", lambda: other.log_dataset(runs[1], reference))
    tracker.log_dataset(runs[0], reference)
    inputs = [MlflowClient(tracker.uri).get_run(run).inputs.dataset_inputs for run in runs]
    assert [[given.dataset.name for given in few] for few in inputs] == [["digits"], ["digits"]]


def test_two_first_runs_of_an_experiment_in_the_same_moment_lie_in_one(database, monkeypatch):
    tracker, other = (MlflowTracker(f"sqlite:///{database}", "mine") for _ in range(2))
    in_between(monkeypatch, MlflowClient, "get_experiment_by_name", lambda: other.create("quicker", {}, {}))
    tracker.create("slower", {}, {})
    assert {run.name for run in tracker.search({}, "mine")} == {"quicker", "slower"}


def test_another_process_that_makes_the_store_is_named_and_not_waited_for_for_ever(
    tmp_path, monkeypatch, caplog, database
):
    monkeypatch.setattr(client, "SILENT", 0.0)
    monkeypatch.setattr(client, "PATIENCE", 0.3)
    new = tmp_path / "new.db"
    with client._file_lock(new), FileLock(f"{database}.lock"):
        for _ in range(2):  # who waits must not take the holder's name away
            with pytest.raises(
                StoreError, match=rf"new\.db\.lock has been locked by process {os.getpid()} on .* repeat"
            ):
                MlflowTracker(f"sqlite:///{new}")
        assert f"locked by process {os.getpid()} on" in caplog.text and not new.exists()
        MlflowTracker(f"sqlite:///{database}")  # there is nothing to make: no wait
    MlflowTracker(f"sqlite:///{database}")


def held(database: Path) -> sqlite3.OperationalError:
    """What sqlite reports about a database that another connection is writing."""
    with closing(sqlite3.connect(database)) as writer, closing(sqlite3.connect(database, timeout=0)) as other:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError) as refused:
            other.execute("CREATE TABLE mine (text)")
    return refused.value


def wrapped(cause: Exception) -> MlflowException:
    """As MLflow raises what SQLAlchemy raised of it."""
    middle = RuntimeError("(driver) says\n[SQL: INSERT]")
    middle.orig = cause
    error = MlflowException(str(middle))
    error.__cause__ = middle
    return error


def test_a_database_that_others_write_to_is_asked_again_and_at_last_given_up(database, monkeypatch, caplog):
    opened, refusal = Client(f"sqlite:///{database}", make=False), wrapped(held(database))
    answers = [refusal, refusal, "run"]
    monkeypatch.setattr(client, "SILENT", 0.0)

    def get_run(run_id: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(opened._client, "get_run", get_run)
    assert opened.get_run("a") == "run" and "locked by another" in caplog.text
    monkeypatch.setattr(client, "PATIENCE", 0.0)
    answers += [refusal] * 3
    with pytest.raises(
        StoreError, match="locked by another process that writes to the store for .* nothing was changed. Wait"
    ):
        opened.get_run("a")


def test_files_that_the_disk_does_not_take(database, tmp_path, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tracker = MlflowTracker(f"sqlite:///{database}")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "spec.json").touch()
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(
        StoreError, match="No space left on device; data that were written before are kept. Free some disk space"
    ):
        tracker.upload(tracker.create("run", {}, {}), tmp_path / "files")


def test_mlflow_prints_no_traceback_of_what_is_refused(database, monkeypatch, capsys):
    opened = Client(f"sqlite:///{database}", make=False)
    monkeypatch.setattr(client, "PATIENCE", 0.0)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DROP TABLE runs")
    with pytest.raises(StoreRefusal, match="no such table"):
        opened.get_run("a" * 32)
    assert "Traceback" not in capsys.readouterr().err


def answered(status: int) -> MlflowException:
    """As MLflow raises what a server answers."""
    response = requests.Response()
    response.status_code, response._content = status, b"no"
    with pytest.raises(MlflowException) as raised:
        verify_rest_response(response, "/api/2.0/mlflow/runs/create")
    return raised.value


SOCKET, FATAL = 'connection to server at "db", port 5432 failed:', "FATAL: "


def of(module: str, name: str, text: str) -> Exception:
    """An error as of a library that is not needed here."""
    return type(name, (Exception,), {"__module__": module})(text)


def sqlite_error(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x"), FULL),
        (wrapped(sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")), FULL),
        (wrapped(sqlite_error(sqlite3.SQLITE_IOERR_WRITE, "disk I/O error")), FAILING),
        (wrapped(sqlite_error(sqlite3.SQLITE_READONLY_DBMOVED, "readonly")), BARRED),
        (wrapped(sqlite_error(sqlite3.SQLITE_CORRUPT, "malformed")), DAMAGED),
        (wrapped(sqlite_error(sqlite3.SQLITE_BUSY, "locked")), HELD),
        (MlflowException("Names cannot\ncontain '/'"), ""),
        (ModuleNotFoundError("No module named 'boto3'"), LACKING),
        (answered(401), UNKNOWN),
        (answered(403), FORBIDDEN),
        (
            HTTPError(
                "403 for url: http://a/api/2.0/mlflow-artifacts/artifacts/1/x",
                response=SimpleNamespace(status_code=403),
            ),
            FORBIDDEN,
        ),
        (
            RestException(
                {"error_code": "UNAUTHENTICATED", "message": "Failed to list artifacts in s3://a/1: no match"}
            ),
            KEYLESS,
        ),
        (
            RetryError(
                "/api/2.0/mlflow-artifacts/artifacts/1/x (Caused by ResponseError('too many 500 error responses'))"
            ),
            FAULTY,
        ),
        (answered(503), AWAY),
        (requests.exceptions.SSLError("certificate verify failed"), ""),
        (of("botocore.exceptions", "NoCredentialsError", "Unable to locate credentials"), KEYLESS),
        (of("boto3.exceptions", "S3UploadFailedError", "(SignatureDoesNotMatch) when"), KEYLESS),
        (of("botocore.exceptions", "EndpointConnectionError", "Could not connect"), AWAY),
        (of("botocore.errorfactory", "NoSuchBucket", "no bucket"), ""),
        (wrapped(of("psycopg2", "OperationalError", SOCKET)), AWAY),
        (wrapped(of("psycopg2.errors", "AdminShutdown", f"{FATAL}administrator command\nserver closed")), AWAY),
        (wrapped(of("psycopg2", "OperationalError", f"{SOCKET} {FATAL}the database system is starting up")), AWAY),
        (wrapped(of("psycopg2", "OperationalError", f'{SOCKET} {FATAL}password failed for "ann"')), ""),
        (wrapped(of("psycopg2.errors", "DiskFull", "could not extend file")), ""),
    ],
)
def test_what_a_store_refuses_has_its_kind_and_is_one_line_without_sql(error, kind):
    with pytest.raises(StoreRefusal) as refused, client.answering("sqlite:///a.db"):
        raise error
    assert refused.value.kind == kind and "\n" not in str(refused.value) and "SQL:" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_no_server_is_an_answer_and_not_minutes_of_silence(silent_address, monkeypatch):
    waits = []
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waits.append))
    with pytest.raises(
        StoreError,
        match=f"store {silent_address} does not respond: Connection refused; .*Check that the server is running",
    ):
        MlflowTracker(silent_address)
    assert waits == []


def test_a_server_that_is_away_for_a_while_is_waited_for_by_who_is_at_work(silent_address, monkeypatch, caplog):
    opened, clock = object.__new__(Client), iter(range(1000))
    vars(opened).update(uri=silent_address, _waits=True)
    own = SimpleNamespace(monotonic=lambda: 20.0 * next(clock), sleep=lambda seconds: None)
    monkeypatch.setattr(client, "time", own)
    cut = requests.exceptions.ChunkedEncodingError(
        "Connection broken: IncompleteRead(0 bytes read, 2241 more expected)"
    )
    answers = [requests.exceptions.ConnectionError("refused"), wrapped(cut), cut]
    asked = []

    def ask() -> str:
        asked.append(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"])
        if answers:
            raise answers.pop()
        return "run"

    assert opened.ask(ask) == "run" and asked == ["1"] * 4 and caplog.text.count("300 seconds") == 1
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
    answers += [requests.exceptions.ConnectionError("refused")] * 99
    with pytest.raises(StoreRefusal, match="does not respond: refused"):
        opened.ask(ask)
    fault = requests.exceptions.RetryError("too many 500 error responses")
    answers[:] = [
        fault,
        *[requests.exceptions.ConnectionError("refused")] * 4,
    ]  # from the last: it comes up, not whole at once
    assert opened.ask(ask) == "run"
    answers[:] = [fault] * 99
    with pytest.raises(StoreRefusal, match="responds with errors"):
        opened.ask(ask)
    assert len(answers) > 90
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    answers.clear()
    assert opened.ask(ask) == "run" and asked[-1] == "3", "a user's wish stays"
