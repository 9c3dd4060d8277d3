"""A filled store has what a trained one has, and every command takes it for real."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import store_scale
from benchmarks.filled_store import TABLES, fill
from benchmarks.filled_study import PER_SEED, SEEDS, study_text
from benchmarks.verb_cost import cost_of
from fa_registry.cli import main
from fa_registry.studies.study import load_study
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.writer import folder_digests

RUNS = 2 * PER_SEED
OWN = {"fa.artifacts", "fa.weights", "fa.process", "fa.study_run"}  # tags whose values no two runs share


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    fill(folder, RUNS)
    return folder


@pytest.fixture
def call(filled, monkeypatch):
    monkeypatch.chdir(filled)

    def invoke(*arguments: str):
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    return invoke


def runs(folder: Path) -> dict[str, str]:
    """Name of every run → its id."""
    found = MlflowTracker(f"sqlite:///{folder / 'mlflow.db'}").search({schema.TAG_KIND: "run"})
    assert len(found) == len({run.name for run in found})
    return {run.name: run.run_id for run in found}


def rows(folder: Path, table: str, run_id: str) -> list[dict]:
    with sqlite3.connect(folder / "mlflow.db") as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} WHERE {TABLES[table]} = ?", (run_id,))]


def artifacts(folder: Path, run_id: str) -> Path:
    return Path(rows(folder, "runs", run_id)[0]["artifact_uri"].removeprefix("file://"))


def test_a_study_has_settings_of_25_seeds(tmp_path):
    (tmp_path / "study.toml").write_text(study_text(3 * PER_SEED * SEEDS - 10), encoding="utf-8")
    study = load_study(str(tmp_path / "study.toml"))
    assert [len(specs) for specs in study.settings.values()] == [125, 125, 115]


@pytest.mark.long
def test_an_audit_takes_every_run_and_finds_it_intact(call, filled, tmp_path, monkeypatch):
    store = shutil.copy(filled / "mlflow.db", tmp_path)  # so that what an audit writes is in no other test's store
    (tmp_path / "mlartifacts").symlink_to(filled / "mlartifacts")
    monkeypatch.setenv("FA_REGISTRY_ARTIFACTS", str(filled))
    asked = ("--study", "study.toml", "--device", "cpu", "--trust-logged", "--exit-zero", "--out", str(tmp_path))
    result = call("audit", *asked, "--store", f"sqlite:///{store}")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert len(report["runs"]) == RUNS and not report["excluded"]


@pytest.mark.long
def test_a_copy_is_a_run_of_its_own_and_leaves_the_one_it_was_made_from_alone(filled):
    names = runs(filled)
    assert len(names) == RUNS
    folders = {name: artifacts(filled, run_id) for name, run_id in names.items()}
    seeds = {json.loads((folder / schema.SPEC).read_text())["seed"] for folder in folders.values()}
    assert seeds == {0, 1} and len(set(folders.values())) == RUNS
    for folder in folders.values():
        provenance = json.loads((folder / schema.PROVENANCE).read_text())
        found = {name: digest for name, digest in folder_digests(folder).items() if name in provenance["digests"]}
        assert found == provenance["digests"]


@pytest.mark.long
def test_a_copy_has_what_a_trained_run_of_its_specification_has(filled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(filled / "study.toml", tmp_path)
    trained = CliRunner().invoke(main, ["study", "study.toml", "--device", "cpu", "--jobs", "1", "--seeds", "1"])
    assert trained.exit_code == 0, trained.output
    copies, real = runs(filled), runs(tmp_path)
    assert len(real) == PER_SEED
    for name, run_id in real.items():
        assert described(filled, copies[name]) == described(tmp_path, run_id), name


def described(folder: Path, run_id: str) -> dict:
    """All that is stored of a run, with the values that do not come from training or belong to one run alone."""
    files = artifacts(folder, run_id)
    tags = {row["key"]: "" if row["key"] in OWN else row["value"] for row in rows(folder, "tags", run_id)}
    return {
        "status": rows(folder, "runs", run_id)[0]["status"],
        "tags": tags,
        "params": {row["key"]: row["value"] for row in rows(folder, "params", run_id)},
        "metrics": sorted((row["key"], row["step"]) for row in rows(folder, "metrics", run_id)),
        "latest": sorted((row["key"], row["step"]) for row in rows(folder, "latest_metrics", run_id)),
        "data sets": [row["source_type"] for row in rows(folder, "inputs", run_id)],
        "files": set(folder_digests(files)) - {*schema.ADDED_BY_AUDITS},
        "specification": (files / schema.SPEC).read_text(encoding="utf-8"),
    }


def test_what_a_whole_command_costs_is_counted(tmp_path):
    found = cost_of(["--version"], tmp_path)
    assert found.cpu > 0.01 and found.wall > 0.01 and 5 < found.peak < 4096
    with pytest.raises(SystemExit, match="exit 2"):
        cost_of(["nothing"], tmp_path)


@pytest.mark.parametrize("command", store_scale.VERBS.values(), ids=lambda command: command[0])
def test_every_command_takes_the_options_that_a_store_is_measured_with(command):
    """By its --help, which click prints only where all before it can be read."""
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output
