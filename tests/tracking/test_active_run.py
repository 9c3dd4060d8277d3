"""MLflow's fluent API inside `track`: the tracked run is the active one, and the experiment of set_experiment is used."""

from __future__ import annotations

import threading

import mlflow
import pytest
import torch
from mlflow.tracking import fluent
from torch import nn

import fa_registry
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.schema import TAG_STATUS
from fa_registry.tracking.stores import open_tracker

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def place(workplace, monkeypatch):
    """The workplace, whose store is MLflow's; all that MLflow keeps per process is restored."""
    monkeypatch.setattr(fluent, "_active_experiment_id", None)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    mlflow.set_tracking_uri(f"sqlite:///{workplace}/mlflow.db")
    yield workplace
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(None)


def tracked(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))
    return fa_registry.track(model, ["0", "2"], (torch.randn(9, 4), torch.arange(9) % 3), "mine", **options)


def stored(uri=None):
    client = mlflow.MlflowClient(uri)
    experiments = client.search_experiments()
    runs = client.search_runs([experiment.experiment_id for experiment in experiments])
    names = {experiment.experiment_id: experiment.name for experiment in experiments}
    return {run.info.run_id: (names[run.info.experiment_id], run.info.status, run.data) for run in runs}


def test_what_the_loop_logs_with_mlflow_belongs_to_the_run(place):
    with tracked() as run:
        assert mlflow.active_run().info.run_id == run.run_id
        mlflow.log_metric("mine", 2.0, step=1)
        mlflow.log_param("learning_rate", 0.1)
        mlflow.set_tag("note", "x")
        mlflow.log_text("text", "notes.txt")
        run.epoch(test_accuracy=0.5)
    assert mlflow.active_run() is None and list(stored()) == [run.run_id]
    _, status, data = stored()[run.run_id]
    assert (status, data.metrics["mine"], data.params["learning_rate"], data.tags["note"]) == (
        "FINISHED",
        2,
        "0.1",
        "x",
    )
    report = fa_registry.audit(run_ids=[run.run_id], out="r")
    assert report.report.runs[0].record.integrity.state == "unverifiable"  # and no mismatch


@pytest.mark.parametrize("is_nested", [False, True])
def test_the_runs_that_were_active_are_active_again(is_nested):
    mlflow.set_experiment("other")  # mlflow.start_run(run_id=…) would refuse the run of another experiment
    with mlflow.start_run() as outer:
        inner = mlflow.start_run(nested=True) if is_nested else outer
        with tracked(experiment="mine") as run:
            mlflow.log_metric("mine", 1.0)
            run.epoch()
        assert mlflow.active_run().info.run_id == inner.info.run_id
        mlflow.log_metric("after", 1.0)
        if is_nested:
            mlflow.end_run()
    found = stored()
    assert found[run.run_id][0] == "mine" and "mine" in found[run.run_id][2].metrics
    assert "after" in found[inner.info.run_id][2].metrics
    assert {status for _, status, _ in found.values()} == {"FINISHED"}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_no_run_stays_active_or_running_after_an_error(error):
    with pytest.raises(error), tracked() as run:
        mlflow.start_run(nested=True)
        raise error
    assert mlflow.active_run() is None
    assert "RUNNING" not in {status for _, status, _ in stored().values()}
    assert stored()[run.run_id][1] == ("FAILED" if error is ZeroDivisionError else "KILLED")


def test_a_run_that_the_loop_ends_itself_is_complete():
    with tracked() as run:
        mlflow.end_run()
        run.epoch(test_accuracy=0.5)
    assert mlflow.active_run() is None and stored()[run.run_id][2].tags[TAG_STATUS] == "complete"


def test_another_store_is_mlflows_store_only_inside(place):
    other = f"sqlite:///{place}/other.db"
    with tracked(store=other) as run:
        mlflow.log_metric("mine", 1.0)
        run.epoch()
    assert "mine" in stored(other)[run.run_id][2].metrics
    assert mlflow.get_tracking_uri() == f"sqlite:///{place}/mlflow.db"


def test_threads_have_their_own_runs():
    ids = {}

    def loop(name):
        with tracked(seed=len(name)) as run:
            mlflow.log_metric(name, 1.0)
            run.epoch()
        ids[name] = (run.run_id, mlflow.active_run())

    tracked_names = ("a", "bb")
    with tracked(seed=9) as run:
        for name in tracked_names:
            thread = threading.Thread(target=loop, args=(name,))
            thread.start()
            thread.join()
        assert mlflow.active_run().info.run_id == run.run_id
        run.epoch()
    for name in tracked_names:
        run_id, active = ids[name]
        assert active is None and name in stored()[run_id][2].metrics


def test_the_chosen_experiment_is_that_of_new_runs(place):
    mlflow.set_experiment("chosen")
    with tracked() as run:
        run.epoch()
    assert stored()[run.run_id][0] == "chosen"
    for store, experiment, name in (("", "named", "named"), (f"sqlite:///{place}/other.db", "", "fa_registry")):
        tracker = open_tracker(store, experiment)
        assert tracker.get(tracker.create("run", {}, {})).experiment == name  # "chosen" is of MLflow's own store
    assert isinstance(open_tracker(), MlflowTracker)
