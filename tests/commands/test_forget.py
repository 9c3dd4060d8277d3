"""The forget command: what may go into MLflow's bin, what must stay, and that an audit still says what was there."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import fa_registry
from fa_registry import process_ownership
from fa_registry.cli import main, maintenance
from fa_registry.errors import InvalidFields, StoreError, UsageError
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import TRAIN
from tests.helpers.dead_process import killed_tag

pytestmark = pytest.mark.long

TRUSTING = ("audit", "--study", "tiny", "--trust-logged", "--exit-zero")
DFA_AGAIN = [word if word != "7" else "2" for word in TRAIN]
DFA_AGAIN[DFA_AGAIN.index("--epochs") + 1] = "2"  # another seed of the study's own setting


def of(run_id: str):
    return MlflowTracker().get(run_id)


def ids(method: str = "dfa") -> list[str]:
    runs = MlflowTracker().search({schema.TAG_KIND: "run", schema.TAG_METHOD: method})
    return [run.run_id for run in runs if run.params.get("cfg/control") == "none"]


def begun(kind: str = "run", **tags: str) -> str:
    given = {schema.TAG_KIND: kind, schema.TAG_STATUS: "running", schema.TAG_PROCESS: process_ownership.process_tag()}
    return MlflowTracker().create(kind, {name: value for name, value in {**given, **tags}.items() if value}, {})


def ended(kind: str) -> str:
    run_id = begun(kind, **{schema.TAG_STATUS: "failed"})
    MlflowTracker().finish(run_id, "FAILED")
    return run_id


def test_the_command_that_it_prints_brings_a_run_back(trained):
    (run_id,) = ids()
    (removed,) = json.loads(trained("forget", run_id, "--yes", "--json").stdout)
    assert (removed["run_id"], removed["kind"], removed["method"], removed["seed"]) == (run_id, "run", "dfa", "1")
    files = [path for path in MlflowTracker().artifact(run_id, schema.SPEC).parent.rglob("*") if path.is_file()]
    assert removed["size"] == sum(path.stat().st_size for path in files) > 0
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", removed["restore"]], check=True, env=environment, capture_output=True)
    assert not of(run_id).deleted


def test_a_dry_run_shows_the_runs_and_moves_none(trained):
    (run_id,) = ids()
    shown = trained("forget", run_id, "--dry-run", "--json")
    assert [run["run_id"] for run in json.loads(shown.stdout)] == [run_id] and not of(run_id).deleted
    assert run_id[:8] in trained("forget", run_id, "--dry-run").stdout and not of(run_id).deleted
    assert trained("forget", "zzzz", "--dry-run").exit_code == 2


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_without_a_terminal_it_needs_yes(trained, options):
    (run_id,) = ids()
    for given in (run_id, "zzzz", ""):
        assert trained("forget", given, *options).exit_code == 2 and not of(run_id).deleted


def test_with_a_terminal_it_asks(trained, monkeypatch):
    (run_id,) = ids()
    monkeypatch.setattr(maintenance, "_can_answer", lambda: True)
    for typed, code in (("n\n", 1), ("y\n", 0)):
        asked = CliRunner().invoke(main, ["forget", run_id], input=typed)
        assert (asked.exit_code, of(run_id).deleted) == (code, not code) and run_id[:8] in asked.output


def test_what_must_stay_is_named_at_once_and_then_nothing_goes(trained):
    trained(*TRUSTING)
    (free,), (study,), (audit,) = (
        ids(),
        *([run.run_id for run in MlflowTracker().search({schema.TAG_KIND: kind})] for kind in ("study", "audit")),
    )
    gone, foreign = ended("run"), MlflowTracker().create("foreign", {}, {})
    MlflowTracker().discard(gone)
    here, elsewhere = begun(), begun(**{schema.TAG_PROCESS: "far:1:1:1"})
    expected = {
        here: process_ownership.process_tag().partition(":")[0],
        elsewhere: "running on far",
        audit: "audit",
        study: "4 training runs",
        gone: "MLflow's bin",
        foreign: "fa.kind",
    }
    result = trained("forget", free, *expected, "--yes")
    assert result.exit_code == 2 and f"{len(expected)} problems" in result.stderr
    for run_id, text in expected.items():
        assert any(f"run {run_id}: " in line and text in line for line in result.stderr.splitlines()), (run_id, text)
    assert [of(run_id).deleted for run_id in (free, *expected)] == [run_id == gone for run_id in (free, *expected)]


def test_a_study_whose_runs_are_gone_and_a_killed_run_can_go(trained):
    (study,) = MlflowTracker().search({schema.TAG_KIND: "study"})
    killed = begun(**{schema.TAG_PROCESS: killed_tag()})
    runs = [run.run_id for run in MlflowTracker().search({schema.TAG_STUDY_RUN: study.run_id})]
    assert len(fa_registry.forget(*runs, killed)) == 5
    assert [run.kind for run in fa_registry.forget(study.run_id)] == ["study"]
    assert not MlflowTracker().search({})


def test_an_id_that_is_unknown_ambiguous_or_missing_is_an_error(trained):
    for given in (("x",), ("",), ()):
        with pytest.raises(UsageError):
            fa_registry.forget(*given)
    with pytest.raises(StoreError, match="no run"):
        fa_registry.forget("0" * 32)
    (run_id,) = ids()
    assert len(fa_registry.forget(run_id, run_id[:8])) == 1  # named twice


def test_a_run_whose_weights_are_a_registered_model_stays(judged):
    run = judged.run()
    promoted = judged.promote(run, "--edition", "2026-12")
    assert promoted.exit_code == 0, promoted.output
    with pytest.raises(InvalidFields, match=r"models:/.*/1"):
        fa_registry.forget(run.run_id, store=judged.store)
    assert not judged.tracker.get(run.run_id).deleted


def test_a_run_whose_files_are_gone_can_be_forgotten(trained, workplace):
    (run_id,) = ids()
    with closing(sqlite3.connect("mlflow.db")) as database, database:
        database.execute("UPDATE runs SET artifact_uri = '/proc/self' WHERE run_uuid = ?", (run_id,))
    (removed,) = fa_registry.forget(run_id)
    assert removed.size is None and of(run_id).deleted
