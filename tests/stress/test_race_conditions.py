"""The short form of `make stress`'s races: stores that are not there yet, made by those who all want to write first."""

from __future__ import annotations

import pytest

from tests.end_to_end.conftest import skipped
from tests.end_to_end.server import mlflow_server
from tests.helpers.postgres import missing, postgres
from tests.stress.race_conditions import race

WRITERS, RUNS = 4, 3


def test_writers_that_begin_together_on_a_store_that_is_not_there_yet_lose_nothing(tmp_path):
    assert race(f"sqlite:///{tmp_path / 'mlflow.db'}", WRITERS, RUNS) == (0, [])


@pytest.mark.long
def test_nor_on_an_empty_postgresql(tmp_path, monkeypatch):
    if missing():
        skipped(missing())
    monkeypatch.chdir(tmp_path)  # where MLflow puts the artifacts of a database that no server serves
    with postgres() as database:
        assert race(database.address(), WRITERS, RUNS) == (0, [])


@pytest.mark.long
def test_nor_on_a_new_server(tmp_path):
    with mlflow_server(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlartifacts") as store:
        assert race(store, WRITERS, RUNS) == (0, [])
