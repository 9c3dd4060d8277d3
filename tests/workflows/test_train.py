"""The train verb, and everything it refuses before a run exists."""

from __future__ import annotations

import json

import pytest

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.workflows.conftest import TRAIN


def runs():
    return MlflowTracker().search({})


def test_a_run_is_trained_once_and_again_only_by_force(registry):
    first = json.loads(registry(*TRAIN, "--json").stdout)
    assert first["trained"] and first["status"] == "complete" and 0 < first["headline"]["accuracy"] < 1
    second = registry(*TRAIN)
    assert second.exit_code == 0 and "already complete" in second.stdout and first["run_id"] in second.stdout
    assert len(runs()) == 1
    assert json.loads(registry(*TRAIN, "--force", "--json").stdout)["run_id"] != first["run_id"]


def test_all_wrong_fields_are_named_at_once_and_nothing_is_written(registry):
    result = registry(
        "train",
        "--method",
        "dfaa",
        "--architecture",
        "resnlp",
        "--dataset",
        "digit",
        "--epochs",
        "notafloat",
        "--penalty",
        "-1",
        "--device",
        "cpu",
        "--set",
        "learning_rate=fast",
        "--set",
        "colour=red",
    )
    assert result.exit_code == 2
    for words in (
        "unknown method 'dfaa' (did you mean 'dfa'?)",
        "did you mean 'resmlp'",
        "did you mean 'digits'",
        "epochs: expected a whole number, found 'notafloat'",
        "penalty: expected at least 0",
        "seed: missing",
        "learning_rate: expected a number",
        "unknown field 'colour'",
    ):
        assert words in result.stderr
    assert runs() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--epochs", "-1"), "epochs: expected at least 0"),
        (("--set", "batch_size=1438"), "larger than the data (digits trains on 1437)"),
        (("--device", "cuda"), "torch sees no CUDA device"),
        (("--control", "frozen"), "the frozen control is trained by bp"),
        (("--set", "architecture.num_blocks=0"), "use control=shallow"),
        (("--set", "nonsense"), "expected NAME=VALUE"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_exit_2(registry, change, message):
    result = registry(*TRAIN, *change)
    assert result.exit_code == 2 and message in result.stderr
    assert runs() == []


def test_a_run_that_diverges_is_marked_so_and_does_not_crash(registry):
    result = json.loads(registry(*TRAIN, "--set", "learning_rate=1e30", "--epochs", "3", "--json").stdout)
    assert result["status"] == "diverged"
    run = MlflowTracker().get(result["run_id"])
    assert run.state == "FINISHED" and run.tags[schema.TAG_STATUS] == "diverged" and run.tags[schema.TAG_NOT_FINITE]


def test_training_that_breaks_leaves_no_run_that_says_running(registry, monkeypatch):
    def broken(*arguments, **named):
        raise RuntimeError("the machine is on fire")

    monkeypatch.setattr("fa_registry.workflows.training.training", broken)
    result = registry(*TRAIN)
    assert result.exit_code == 1 and "the machine is on fire" in result.stderr
    assert [(run.state, run.tags[schema.TAG_STATUS]) for run in runs()] == [("FAILED", "failed")]


def test_a_run_that_mlflow_started_is_taken_over(registry, monkeypatch):
    tracker = MlflowTracker()
    launched = tracker.create("launched by mlflow run", {}, {"seed": "'7'"})
    monkeypatch.setenv("MLFLOW_RUN_ID", launched)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", tracker.experiment_id)
    assert json.loads(registry(*TRAIN, "--json").stdout)["run_id"] == launched
    assert [run.name for run in runs()] == ["dfa · resmlp-16x2 · digits · 1 epochs · s7"]


def test_a_zombie_of_the_same_spec_is_closed(registry):
    first = json.loads(registry(*TRAIN, "--json").stdout)["run_id"]
    tracker = MlflowTracker()
    tags = {name: value for name, value in tracker.get(first).tags.items() if name.startswith("fa.")}
    host = tags[schema.TAG_PROCESS].split(":")[0]
    zombie = tracker.create(
        "zombie", {**tags, schema.TAG_STATUS: "running", schema.TAG_PROCESS: f"{host}:999999999"}, {}
    )
    registry(*TRAIN, "--force")
    assert (tracker.get(zombie).state, tracker.get(zombie).tags[schema.TAG_STATUS]) == ("KILLED", "failed")
