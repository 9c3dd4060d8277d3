"""The short form of `python -m tests.stress.workers`: a study shared by workers that start together."""

from __future__ import annotations

import pytest

from tests.end_to_end.conftest import skipped
from tests.end_to_end.server import mlflow_server
from tests.helpers.postgres import missing, postgres
from tests.stress.workers import shared

WORKERS, SPECS = 4, 8


def assert_each_once(store: str) -> None:
    found = shared(store, WORKERS, SPECS)
    assert found["crashed"] == []
    assert (found["lost"], found["twice"], found["running"], sum(found["trained"])) == (0, 0, 0, SPECS)


def test_workers_that_start_together_train_each_specification_once(tmp_path):
    assert_each_once(f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.mark.long
def test_so_they_do_on_postgresql(tmp_path, monkeypatch):
    if missing():
        skipped(missing())
    monkeypatch.chdir(tmp_path)
    with postgres() as database:
        assert_each_once(database.address())


@pytest.mark.long
def test_so_they_do_on_a_server(tmp_path):
    with mlflow_server(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlartifacts") as store:
        assert_each_once(store)
