"""What a person does in MLflow's own pages, or a server does not allow, costs the pages' address at most: said in one sentence."""

from __future__ import annotations

import json

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from fa_registry.tracking import mlflow_tracker, schema
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.stores import mlflow_page

VIEW = "mlflow.sharedViewState."
AUDIT = ("audit", "--study", "tiny", "--trust-logged", "--exit-zero")


def pages_row(doctor) -> dict:
    (row,) = (row for row in json.loads(doctor.stdout) if row["check"] == "MLflow's pages")
    return row


@pytest.fixture
def experiment(trained):
    """Of the trained runs, as a client sees it."""
    return MlflowClient().get_experiment_by_name(schema.EXPERIMENT)


@pytest.fixture
def unseen(experiment) -> str:
    """The id of the experiment, without its views and note: one that exists already is not written again."""
    for name in experiment.tags:
        if name.startswith((VIEW, schema.TAG_NOTE)):
            MlflowClient().delete_experiment_tag(experiment.experiment_id, name)
    return experiment.experiment_id


def test_a_server_that_takes_no_tags_of_an_experiment_costs_the_address_alone(trained, monkeypatch, unseen):
    def refuse(*_):
        raise MlflowException("Permission denied")

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    for command in (("study", "tiny"), AUDIT):
        ended = trained(*command)
        assert ended.exit_code == 0 and "side by side" not in ended.stdout
        assert "the store does not accept tags of experiment" in ended.stderr and "Permission denied" in ended.stderr
    assert pages_row(trained("doctor", "--json"))["found"].startswith("none: ")


def test_pages_of_another_mlflow_get_no_views_and_doctor_says_so(trained, monkeypatch, unseen):
    monkeypatch.setattr(mlflow_tracker.mlflow, "__version__", "4.0.1")
    ended = trained("study", "tiny")
    assert ended.exit_code == 0 and "side by side" not in ended.stdout and "MLflow 4.0.1" in ended.stderr
    assert not [name for name in MlflowClient().get_experiment(unseen).tags if name.startswith(VIEW)]
    found = pages_row(trained("doctor", "--json"))["found"]
    assert found == "no views: found MLflow 4.0.1, but views need MLflow 3.17.*"


def test_a_deleted_experiment_is_named_by_every_command_with_the_way_back_and_nothing_is_trained_again(
    trained, experiment
):
    before = {run.run_id for run in MlflowTracker().search({schema.TAG_KIND: "run"})}
    MlflowClient().delete_experiment(experiment.experiment_id)
    for command in (("study", "tiny"), AUDIT):
        ended = trained(*command)
        assert ended.exit_code == 2 and ended.stdout == ""
        assert f"mlflow experiments restore --experiment-id {experiment.experiment_id}`" in ended.stderr
    row = pages_row(trained("doctor", "--json"))
    assert not row["ok"] and "was deleted in MLflow" in row["found"]
    MlflowClient().restore_experiment(experiment.experiment_id)
    assert {run.run_id for run in MlflowTracker().search({schema.TAG_KIND: "run"})} == before
    assert trained("study", "tiny").exit_code == 0


def test_a_renamed_experiment_keeps_its_runs_and_new_ones_elsewhere_are_reported(unpublished, trained, experiment):
    MlflowClient().rename_experiment(experiment.experiment_id, "mine")
    there = trained("study", "tiny")
    assert (
        there.exit_code == 0
        and f"/experiments/{experiment.experiment_id}/" in there.stdout
        and "The other runs are in" not in there.stderr
    )
    more = trained("study", "tiny", "--seeds", "1,2", "--jobs", "1")
    assert more.exit_code == 0
    assert "study tiny has 8 runs. MLflow's page shows only the 4 runs in experiment fa_registry" in more.stderr
    assert "The other runs are in mine. To log new runs in one experiment, use --experiment" in more.stderr
    audited = json.loads(trained(*AUDIT, "--seeds", "1,2", "--json").stdout)["report"]
    assert len(audited["runs"]) == 8


def test_the_page_of_many_runs_compares_no_run_with_another(tmp_path, monkeypatch):
    """Comparing every run with every other takes a minute for 10,000 runs."""
    tracker = MemoryTracker(tmp_path)
    for _ in range(3):
        tracker.create("dfa", {schema.TAG_KIND: "run", schema.TAG_STUDY: "tiny", schema.TAG_SPEC: "s"}, {})

    compared = []
    monkeypatch.setattr(StoredRun, "__eq__", lambda run, other: bool(compared.append(other)))
    mlflow_page(tracker, "tiny")
    assert compared == []
