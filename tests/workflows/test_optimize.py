"""optimize: the store knows its tables' sizes afterwards, and one that is locked or no sqlite says so."""

from __future__ import annotations

import json
import sqlite3


def statistics(path) -> list:
    with sqlite3.connect(path) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE name = 'sqlite_stat1'").fetchall()
        return connection.execute("SELECT tbl FROM sqlite_stat1 WHERE tbl = 'metrics'").fetchall() if names else []


def test_a_store_is_analysed_and_its_rows_are_told(trained, workplace):
    assert not statistics(workplace / "mlflow.db")
    result = trained("optimize", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["rows"]["runs"] == 5 and found["rows"]["metrics"] > 100  # four runs and their study's own
    assert statistics(workplace / "mlflow.db")
    assert "runs" in trained("optimize").stdout


def test_a_store_that_is_not_there_is_not_made(registry, tmp_path):
    result = registry("optimize", "--store", f"sqlite:///{tmp_path / 'none.db'}")
    assert result.exit_code == 2 and not (tmp_path / "none.db").exists()
