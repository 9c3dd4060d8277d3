"""A store that is not there, that is something else, and that can only be read: what each verb does, and what it leaves behind."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from fa_registry import jsonio
from fa_registry.api.loading import load_model
from fa_registry.errors import StoreError
from fa_registry.workflows.stores import open_tracker, put_launched_away
from tests.helpers.powerless import make_read_only, powerless
from tests.helpers.stores import LEADING, cut_off_a_write, made_once, working_in
from tests.workflows.conftest import TRAIN, call, write_study
from tests.workflows.test_audit import AUDIT

READS = {
    "load_model": lambda store: load_model("models:/dfa@best", store=store),
    "open_tracker": lambda store: open_tracker(store, create=False),
}


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_only_reads_makes_no_store_of_a_mistyped_name(read, tmp_path):
    with pytest.raises(StoreError, match=r"typo\.db: there is none yet; .*study"):
        read(f"sqlite:///{tmp_path / 'typo.db'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_only_reads_fills_no_empty_file(read, tmp_path):
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="there is none yet"):
        read(f"sqlite:///{tmp_path / 'empty.db'}")
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0]


@pytest.mark.parametrize("make", [True, False])
def test_another_programs_database_gets_no_tables_of_ours(make, tmp_path):
    foreign(tmp_path / "notes.db")
    before = (tmp_path / "notes.db").read_bytes()
    with pytest.raises(StoreError, match="a database of something else than MLflow"):
        open_tracker(f"sqlite:///{tmp_path / 'notes.db'}", create=make)
    assert (tmp_path / "notes.db").read_bytes() == before


def test_a_run_of_mlflow_that_is_nowhere_makes_no_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_RUN_ID", "abc")
    with pytest.raises(StoreError, match="there is none yet"):
        put_launched_away("list")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="session")
def audited(tmp_path_factory, tiny_store) -> Path:
    """The folder of the tiny study, audited, its database as it comes from another machine: its addresses lead nowhere."""

    def audit(folder: Path) -> None:
        shutil.copytree(tiny_store, folder, dirs_exist_ok=True)
        with working_in(folder):
            assert call(*AUDIT).exit_code == 1
        with sqlite3.connect(folder / "mlflow.db") as database:
            for table, column in LEADING:
                database.execute(
                    f"UPDATE {table} SET {column} = replace({column}, ?, '/home/author/study')", (str(tiny_store),)
                )
        database.close()

    return made_once(tmp_path_factory, "audited", audit)


def runs(folder: Path) -> dict[str, str]:
    """method → id of its run."""
    with sqlite3.connect(folder / "mlflow.db") as database:
        query = "SELECT a.value, a.run_uuid FROM tags a WHERE a.key = 'fa.method'"
        return dict(database.execute(query).fetchall())


def test_a_reviewers_copy_that_cannot_be_written_is_read_by_every_verb_that_reads(audited, workplace):
    write_study(workplace)
    copy = workplace / "a copy #1 100%"
    shutil.copytree(audited, copy)
    before = {path: jsonio.file_digest(path) for path in copy.rglob("*") if path.is_file()}
    store, run = ("--store", f"sqlite:///{copy / 'mlflow.db'}"), runs(copy)["dfa"]
    reads = [
        ("show", run, *store),
        ("doctor", "--json", *store),
        ("compare", "bp", "dfa", "--study", "tiny", "--out", "side-by-side", *store),
        ("verify", "--study", "tiny", *store),
        ("report", "--study", "tiny", "--out", "again", *store),
        ("study", "tiny", "--dry-run", "--no-probe", *store),
    ]
    writes = [(*AUDIT, *store), (*TRAIN, *store), ("promote", run, *store), ("optimize", *store)]
    shutil.copytree(copy, cut := workplace / "cut")
    cut_off_a_write(cut / "mlflow.db")
    for folder in (copy, cut):
        make_read_only(folder)
    *answers, (code, _, stderr, _) = powerless(
        [*reads, *writes, ("show", run, "--store", f"sqlite:///{cut}/mlflow.db")], workplace
    )
    assert code == 2 and "its last write was cut off" in stderr and "let its owner run" in stderr, stderr
    for verb, (code, stdout, stderr, exception) in zip([*reads, *writes], answers, strict=True):
        expected = 2 if verb in writes else 0
        assert code == expected, (verb, code, stdout, stderr, exception)
        if verb in writes:
            assert stderr.count("\n") == 1 and "cannot be written; choose another with --store" in stderr, stderr
    doctor = {row["check"]: row["found"] for row in json.loads(answers[1][1])}
    assert "4 finished runs" in doctor["store"] and "can only be read" in doctor["store"]
    assert doctor["MLflow's pages"].startswith("http")
    again = workplace / "again" / "index.html"
    assert again.read_bytes() == (audited / "reports" / "index.html").read_bytes()
    assert {path: jsonio.file_digest(path) for path in copy.rglob("*") if path.is_file()} == before
