"""Stores that cannot be used say why, before anything is written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from fa_registry.errors import StoreError
from fa_registry.tracking.mlflow_tracker import MlflowTracker, known_revisions
from fa_registry.tracking.store import check_store, resolve_uri


@pytest.mark.parametrize("uri", ["file:./mlruns", "./mlruns", "mlruns"])
def test_the_file_store_is_refused(uri):
    with pytest.raises(StoreError, match="file store is no longer supported"):
        resolve_uri(uri)


def test_the_argument_beats_the_environment_beats_the_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert resolve_uri() == f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert resolve_uri() == "http://127.0.0.1:5000"
    assert resolve_uri("sqlite:///other.db") == f"sqlite:///{tmp_path / 'other.db'}"


def test_a_store_made_by_a_newer_mlflow(tmp_path, empty_store):
    database = tmp_path / "mlflow.db"
    shutil.copy(empty_store, database)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'fedcba987654'")
    connection.close()
    before = database.read_bytes()
    with pytest.raises(StoreError, match="a newer MLflow made it"):
        MlflowTracker(f"sqlite:///{database}")
    assert database.read_bytes() == before


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "notes.db").write_text("these are notes, not a database; they are long enough to be read as a header")
    with pytest.raises(StoreError, match="not an SQLite database"):
        MlflowTracker(f"sqlite:///{tmp_path / 'notes.db'}")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        MlflowTracker(f"sqlite:///{tmp_path / 'none' / 'mlflow.db'}")


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere, so the answer is given here
    with pytest.raises(StoreError, match="cannot be written"):
        check_store(f"sqlite:///{tmp_path / 'mlflow.db'}", known_revisions())


def test_four_processes_create_one_store_together(tmp_path):
    code = (
        "import sys; from fa_registry.tracking.mlflow_tracker import MlflowTracker;"
        "print(MlflowTracker(sys.argv[1]).create('run', {'who': 'me'}, {}))"
    )
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    started = [
        subprocess.Popen([sys.executable, "-c", code, uri], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ended = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0] * 4, ended
    assert len(MlflowTracker(uri).search({"who": "me"})) == 4


def test_an_artifact_folder_that_is_no_folder(tmp_path):
    (tmp_path / "mlartifacts").write_text("a file in the way")
    with pytest.raises(StoreError, match="mlartifacts is no folder that can be written"):
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert not (tmp_path / "mlflow.db").exists()
