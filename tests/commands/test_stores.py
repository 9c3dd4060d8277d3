"""A store that is missing, that is something else, or that can only be read: what each command does, and what it leaves behind."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from fa_registry import jsonio
from fa_registry.errors import StoreError
from fa_registry.tracking.model_loader import load_model
from fa_registry.tracking.stores import open_tracker, trash_launcher_run
from tests.commands.conftest import TRAIN, call, write_study
from tests.commands.test_audit import AUDIT
from tests.helpers.stores import LEADING, copy_store, cut_off_a_write, made_once, working_in
from tests.helpers.unprivileged_user import make_read_only, powerless

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
    with pytest.raises(StoreError, match=r"typo\.db"):
        read(f"sqlite:///{tmp_path / 'typo.db'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_only_reads_fills_no_empty_file(read, tmp_path):
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="does not exist yet"):
        read(f"sqlite:///{tmp_path / 'empty.db'}")
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0]


@pytest.mark.parametrize("make", [True, False])
def test_another_programs_database_gets_no_tables_of_ours(make, tmp_path):
    foreign(tmp_path / "notes.db")
    before = (tmp_path / "notes.db").read_bytes()
    with pytest.raises(StoreError, match="notes.db"):
        open_tracker(f"sqlite:///{tmp_path / 'notes.db'}", create=make)
    assert (tmp_path / "notes.db").read_bytes() == before


def test_a_run_of_mlflow_that_is_nowhere_makes_no_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_RUN_ID", "abc")
    with pytest.raises(StoreError, match="does not exist yet"):
        trash_launcher_run("list")
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

    return made_once(tmp_path_factory, "audited-elsewhere", audit)


def runs(folder: Path) -> dict[str, str]:
    """method → id of its run."""
    with sqlite3.connect(folder / "mlflow.db") as database:
        query = "SELECT a.value, a.run_uuid FROM tags a WHERE a.key = 'fa.method'"
        return dict(database.execute(query).fetchall())


@pytest.mark.long
def test_a_reviewers_copy_that_cannot_be_written_is_read_by_every_command_that_reads(audited, workplace):
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
        ("study", "tiny", "--dry-run", *store),
    ]
    writes = [(*AUDIT, *store), (*TRAIN, *store), ("promote", run, *store), ("optimize-store", *store)]
    shutil.copytree(copy, cut := workplace / "cut")
    cut_off_a_write(cut / "mlflow.db")
    for folder in (copy, cut):
        make_read_only(folder)
    *answers, (code, _, stderr, _) = powerless(
        [*reads, *writes, ("show", run, "--store", f"sqlite:///{cut}/mlflow.db")], workplace
    )
    assert code == 2 and "interrupted" in stderr, stderr
    for command, (code, stdout, stderr, exception) in zip([*reads, *writes], answers, strict=True):
        expected = 2 if command in writes else 0
        assert code == expected, (command, code, stdout, stderr, exception)
        if command in writes:
            assert stderr.count("\n") == 1 and "--store" in stderr, stderr
    doctor = {row["check"]: row["found"] for row in json.loads(answers[1][1])}
    assert "4 finished runs" in doctor["store"] and "read-only" in doctor["store"]
    assert doctor["MLflow's pages"].startswith("http")
    again = workplace / "again" / "index.html"
    assert again.read_bytes() == (audited / "reports" / "index.html").read_bytes()
    assert {path: jsonio.file_digest(path) for path in copy.rglob("*") if path.is_file()} == before


@pytest.fixture
def original(tiny_store, tmp_path) -> Path:
    """The folder of the tiny study, whose database names its own files; the working folder is next to it."""
    copy_store(tiny_store, folder := tmp_path / "original")
    return folder


def contents(folder: Path) -> dict[str, str]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: jsonio.file_digest(path) for name, path in files.items() if not name.endswith(".lock")}


def artifacts_row(folder: Path, *options: str) -> dict[str, str]:
    result = call("doctor", "--json", *options, "--store", f"sqlite:///{folder}/mlflow.db")
    return next(row for row in json.loads(result.stdout) if row["check"] == "artifacts")


@pytest.mark.long
def test_a_copy_without_its_artifacts_neither_reads_nor_writes_those_of_the_original(original, workplace):
    (copy := workplace / "copy").mkdir()
    shutil.copy(original / "mlflow.db", copy)
    before, run, store = contents(original), runs(copy)["dfa"], ("--store", f"sqlite:///{copy}/mlflow.db")
    shown = call("show", run, *store)
    expected = f"{copy}/mlartifacts/fa_registry/{run}/artifacts"
    assert shown.exit_code == 3 and expected in shown.stderr and str(original) in shown.stderr, shown.output
    row = artifacts_row(copy)
    assert not row["ok"] and "4 of 4" in row["found"] and str(original) in row["found"]
    trained = call(*TRAIN, "--json", *store)
    assert trained.exit_code == 0, trained.output
    new = json.loads(trained.stdout)["run_id"]
    assert call("show", new, *store).exit_code == 0 and contents(original) == before
    assert (copy / "mlartifacts" / "fa_registry" / new / "artifacts" / "spec.json").is_file()


@pytest.mark.long
def test_a_moved_store_is_named_and_doctor_gives_its_database_the_addresses_of_today(original, workplace):
    original.rename(moved := workplace / "moved")
    before = contents(moved)
    row = artifacts_row(moved)
    assert row["ok"] and f"{moved}/mlartifacts" in row["found"] and str(original) in row["found"]
    assert "doctor --repair" in row["found"] and contents(moved) == before
    assert artifacts_row(moved, "--repair")["state"] == "repaired"
    row = artifacts_row(moved)
    assert row["ok"] and "--repair" not in row["found"] and str(original) not in row["found"]
    tracker = open_tracker(f"sqlite:///{moved}/mlflow.db", create=False)
    client = MlflowClient(tracker.uri)
    run = client.get_run(runs(moved)["dfa"])
    assert run.info.artifact_uri == f"{moved.as_uri()}/mlartifacts/fa_registry/{run.info.run_id}/artifacts"
    assert client.get_experiment(run.info.experiment_id).artifact_location.startswith(f"{moved.as_uri()}/")
    (backup,) = moved.glob("mlflow.db.before-*")
    with sqlite3.connect(backup) as database:
        assert all(str(original) in uri for (uri,) in database.execute("SELECT artifact_uri FROM runs"))
    database.close()
