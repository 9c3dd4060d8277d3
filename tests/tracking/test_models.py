"""Models in a real store: the final weights of a run, and versions, aliases and references of registered ones."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException

from fa_registry.errors import StoreError, UsageError
from fa_registry.tracking import schema
from fa_registry.tracking.base import RetentionOptions
from fa_registry.tracking.integrity_checks import checks, history_check
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import ModelRegistry
from fa_registry.tracking.reader import NEEDED, read_recorded
from fa_registry.training.loop import train
from tests.helpers.stores import model_entries
from tests.tracking import conftest
from tests.tracking.conftest import write_run

SHOWN = {"accuracy/test", "growth_max", "gamma_deep_mean", "h_L", "g_L"}  # the logged columns of MLflow's table of runs


@pytest.fixture
def store(tmp_path, empty_store):
    """(registry, id of a run)."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    tracker = MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    return ModelRegistry(tracker.uri), tracker.create("run", {}, {})


def test_versions_have_their_run_their_tags_and_the_aliases_that_were_set_last(store):
    registry, run_id = store
    first = registry.register("a.b-c", run_id, {"fa.x": "1"})
    second = registry.register("a.b-c", run_id, {"fa.x": "2"})
    registry.set_aliases(first, ("best",))
    registry.set_aliases(second, ("warn", "best"))
    found = {version.version: (version.tags, version.run_id) for version in registry.versions_of(run_id)}
    assert {int(number): value for number, value in found.items()} == {
        1: ({"fa.x": "1"}, run_id),
        2: ({"fa.x": "2"}, run_id),
    }
    assert {alias: int(number) for alias, number in registry.aliases("a.b-c").items()} == {"best": 2, "warn": 2}
    assert {registry.find(f"models:/a.b-c{end}").tags["fa.x"] for end in ("/2", "@best", "@warn")} == {"2"}


@pytest.mark.parametrize("reference", ["models:/dfaa/1", "models:/dfa@bets", "models:/dfa/2", "models:/it's/1"])
def test_a_version_that_does_not_exist_is_an_error_of_the_store(store, reference):
    registry, run_id = store
    registry.set_aliases(registry.register("dfa", run_id, {}), ("best",))
    with pytest.raises(StoreError):
        registry.find(reference)


@pytest.mark.parametrize(
    "reference", ["models:/a", "models:/a/b", "models:/a/latest", "a/1", "models:/a@b@c", "models://a/1"]
)
def test_a_text_that_is_no_reference_is_refused(store, reference):
    with pytest.raises(UsageError):
        store[0].find(reference)


@pytest.mark.parametrize(("name", "run"), [("a/b", ""), ("a", "nowhere")])
def test_a_name_or_run_that_mlflow_refuses_is_a_store_error(store, name, run):
    registry, run_id = store
    with pytest.raises(StoreError):
        registry.register(name, run or run_id, {})


@pytest.fixture
def tracker(store) -> MlflowTracker:
    return MlflowTracker(store[0].uri)


def outcomes(tracker: MlflowTracker, run_id: str) -> set[str]:
    """Of all comparisons between the files and the tables of a run."""
    run, recorded = tracker.get(run_id), read_recorded({name: tracker.artifact(run_id, name) for name in NEEDED})
    return {check.outcome for check in (*checks(recorded, run), history_check(recorded, tracker, run))}


def test_the_final_weights_are_a_model_with_the_values_of_the_run_and_no_second_copy(tracker, tmp_path):
    writer, _, _ = write_run(tracker, penalty=0.01)  # its label has a point, which MLflow allows in no model's name
    run, (model,) = tracker.get(writer.run_id), model_entries(tracker)
    assert (model.source_run_id, model.status) == (run.run_id, LoggedModelStatus.READY)
    assert model.name == f"dfa+pen λ=0,01 s7 · {run.tags[schema.TAG_SETTING]}"
    assert {metric.key: metric.value for metric in model.metrics} == {key: run.metrics[key] for key in SHOWN}
    assert {metric.step for metric in model.metrics} == {2}
    assert tracker.link(run.run_id, schema.FINAL) in model.tags[schema.TAG_NOTE]
    assert len(list(tmp_path.rglob("final.safetensors"))) == 1 and not list(tmp_path.rglob(model.model_id))
    points = Counter((point.key, point.step) for point in tracker.history(run.run_id, SHOWN))
    assert set(points.values()) == {1} and len(points) == 3 * len(SHOWN)  # each was stored once


@pytest.mark.parametrize("most", [0, 2])
def test_the_values_are_those_of_the_epoch_whose_weights_were_kept(tracker, most, monkeypatch):
    """Of an epoch that the tables do not show there are none: a further point would be a mismatch."""
    monkeypatch.setattr(conftest, "train", lambda *given: dataclasses.replace(train(*given), selected=1))
    run_id = write_run(tracker, keep=RetentionOptions(points=most))[0].run_id
    points, (model,) = tracker.history(run_id, SHOWN), model_entries(tracker)
    kept = {point.key: point.value for point in points if point.step == 1}
    assert {metric.key: metric.value for metric in model.metrics or ()} == kept and set(kept) == (
        set() if most else SHOWN
    )
    assert len(points) == len({(point.key, point.step) for point in points})


@pytest.mark.parametrize("call", ["create_logged_model", "log_batch", "finalize_logged_model"])
def test_a_store_that_takes_no_model_has_the_whole_run(tracker, monkeypatch, caplog, call):
    genuine = getattr(MlflowClient, call)

    def refuse(self, *given, **named):
        if call != "log_batch" or any(metric.model_id for metric in named["metrics"]):
            raise MlflowException("Permission denied")
        return genuine(self, *given, **named)

    monkeypatch.setattr(MlflowClient, call, refuse)
    run = tracker.get(write_run(tracker)[0].run_id)
    assert (run.state, run.tags[schema.TAG_STATUS]) == ("FINISHED", "complete") and run.run_id in caplog.text
    assert outcomes(tracker, run.run_id) == {"agrees"}


def test_a_deleted_run_takes_its_own_entry_along_and_a_forged_entry_changes_nothing(tracker, tmp_path):
    """An entry is read by nothing, and what it names as its folder is left alone."""
    first, second = (write_run(tracker, seed=seed)[0].run_id for seed in (1, 2))
    client, theirs = MlflowClient(tracker.uri), tmp_path / "theirs"
    theirs.mkdir()
    forged = client.create_logged_model(tracker.experiment_id, "better", first, {schema.TAG_VERDICT: "PASS"})
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute(
            "UPDATE logged_models SET artifact_location = ? WHERE model_id = ?", (theirs.as_uri(), forged.model_id)
        )
    assert schema.TAG_VERDICT not in tracker.get(first).tags and outcomes(tracker, first) == {"agrees"}
    tracker.discard(first)
    assert [model.source_run_id for model in model_entries(tracker)] == [second] and theirs.is_dir()


def test_a_store_without_models_still_deletes_a_run(tracker, monkeypatch, caplog):
    run_id = write_run(tracker)[0].run_id

    def refuse(*_, **__):
        raise MlflowException("No API found")

    monkeypatch.setattr(MlflowClient, "search_logged_models", refuse)
    tracker.discard(run_id)
    assert tracker.get(run_id).deleted and run_id in caplog.text
