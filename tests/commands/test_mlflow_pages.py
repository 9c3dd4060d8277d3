"""What a person does in MLflow's own pages, or a server does not allow, costs the pages' address at most: said in one sentence."""

from __future__ import annotations

import json

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from fa_registry.tracking import mlflow_tracker, schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker

pytestmark = pytest.mark.long

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
        assert ended.exit_code == 0 and "side by side" not in ended.stdout and "Permission denied" in ended.stderr


def test_pages_of_another_mlflow_get_no_views_and_doctor_says_so(trained, monkeypatch, unseen):
    monkeypatch.setattr(mlflow_tracker.mlflow, "__version__", "4.0.1")
    ended = trained("study", "tiny")
    assert ended.exit_code == 0 and "side by side" not in ended.stdout and "MLflow 4.0.1" in ended.stderr
    assert not [name for name in MlflowClient().get_experiment(unseen).tags if name.startswith(VIEW)]
    assert "MLflow 4.0.1" in pages_row(trained("doctor", "--json"))["found"]


def test_a_deleted_experiment_is_named_by_every_command_with_the_way_back_and_nothing_is_trained_again(
    trained, experiment
):
    before = {run.run_id for run in MlflowTracker().search({schema.TAG_KIND: "run"})}
    MlflowClient().delete_experiment(experiment.experiment_id)
    for command in (("study", "tiny"), AUDIT):
        ended = trained(*command)
        assert ended.exit_code == 2 and ended.stdout == ""
        assert f"--experiment-id {experiment.experiment_id}`" in ended.stderr
    row = pages_row(trained("doctor", "--json"))
    assert not row["ok"]
    MlflowClient().restore_experiment(experiment.experiment_id)
    assert {run.run_id for run in MlflowTracker().search({schema.TAG_KIND: "run"})} == before
    assert trained("study", "tiny").exit_code == 0


def test_a_renamed_experiment_keeps_its_runs_and_new_ones_elsewhere_are_reported(unpublished, trained, experiment):
    MlflowClient().rename_experiment(experiment.experiment_id, "mine")
    there = trained("study", "tiny")
    assert there.exit_code == 0 and f"/experiments/{experiment.experiment_id}/" in there.stdout
    more = trained("study", "tiny", "--seeds", "1,2", "--jobs", "1")
    assert more.exit_code == 0 and "experiment fa_registry" in more.stderr and "are in mine" in more.stderr
    audited = json.loads(trained(*AUDIT, "--seeds", "1,2", "--json").stdout)["report"]
    assert len(audited["runs"]) == 8
