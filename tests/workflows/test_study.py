"""The study verb: trains what is missing, says what is there, goes on where it was stopped."""

from __future__ import annotations

import json

from fa_registry.studies.study import load_study
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.verbs import study


def test_a_second_study_trains_nothing_and_says_so(trained):
    again = trained("study", "tiny", "--device", "cpu")
    assert again.exit_code == 0
    assert "all 4 runs are complete, nothing to train" in again.stderr
    assert len(MlflowTracker().search({schema.TAG_KIND: "run"})) == 4


def test_runs_are_children_of_the_study(trained):
    tracker = MlflowTracker()
    (parent,) = tracker.search({schema.TAG_KIND: "study"})
    assert parent.tags[schema.TAG_STATUS] == "complete" and parent.state == "FINISHED"
    children = tracker.search({schema.TAG_PARENT: parent.run_id})
    assert {run.tags["fa.method"] for run in children} == {"bp", "fa", "dfa", "frozen"}


def test_one_that_fails_is_named_and_the_others_are_trained(registry, monkeypatch):
    genuine = Trainer.begin_epoch

    def breaks_for_fa(self):
        if self.task.spec.method == "fa":
            raise RuntimeError("no fa today")
        return genuine(self)

    monkeypatch.setattr(Trainer, "begin_epoch", breaks_for_fa)
    result = registry("study", "tiny", "--jobs", "1", "--device", "cpu", "--json")
    outcome = json.loads(result.stdout)
    assert result.exit_code == 1 and len(outcome["trained"]) == 3
    (name,) = outcome["failed"]
    assert name.startswith("fa ·") and "no fa today" in outcome["failed"][name]


def test_a_stopped_study_goes_on_from_the_same_epoch_to_the_same_weights(registry, workplace, monkeypatch):
    store = f"sqlite:///{workplace / 'mlflow.db'}"
    genuine = Trainer.begin_epoch

    def stops_after_one_epoch(self):
        stopping.append(1)
        return genuine(self)

    stopping: list[int] = []
    monkeypatch.setattr(Trainer, "begin_epoch", stops_after_one_epoch)
    monkeypatch.setattr("fa_registry.workflows.study.stop_on_signal", lambda: _always(lambda: bool(stopping)))
    stopped = study("tiny", device="cpu", store=store, jobs=1)
    assert stopped.exit_code == 130 and len(stopped.stopped) == 4 and not stopped.trained
    assert [run.state for run in MlflowTracker(store).search({schema.TAG_KIND: "run"})] == ["KILLED"]

    monkeypatch.setattr("fa_registry.workflows.study.stop_on_signal", lambda: _always(lambda: False))
    resumed = study("tiny", device="cpu", store=store, jobs=1)
    fresh = study("tiny", device="cpu", store=store, jobs=1, force=True)
    assert len(resumed.trained) == len(fresh.trained) == 4
    tracker = MlflowTracker(store)
    for before, after in zip(resumed.trained, fresh.trained, strict=True):
        for name in (schema.FINAL, schema.INITIAL, schema.SERIES, schema.MEASUREMENTS):
            assert tracker.artifact(before, name).read_bytes() == tracker.artifact(after, name).read_bytes()
    assert not list((workplace / ".fa_registry" / "resume").iterdir())


class _always:
    """A context manager that yields what it was given."""

    def __init__(self, value):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, *error):
        return False


def test_a_study_with_an_unknown_key_writes_nothing(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace("epochs = 2", "epochs = 2\nspeed = 3"))
    result = registry("study", "tiny")
    assert result.exit_code == 2 and "recipe.speed: unknown key" in result.stderr
    assert MlflowTracker().search({}) == []


def test_the_shipped_studies_say_what_they_cost():
    assert load_study("digits").cost


def test_all_that_is_wrong_is_named_before_training(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace('edition = "2026-05"', 'edition = "2099-01"'))
    result = registry("study", "tiny", "--jobs", "many")
    assert result.exit_code == 2
    assert (
        "jobs: expected a whole number, found 'many'" in result.stderr and "unknown edition '2099-01'" in result.stderr
    )
    assert MlflowTracker().search({}) == []


def test_a_study_that_mlflow_started_ends_complete_also_when_nothing_is_left_to_train(trained, monkeypatch):
    tracker = MlflowTracker()
    launched = tracker.create("launched", {}, {})
    monkeypatch.setenv("MLFLOW_RUN_ID", launched)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", tracker.experiment_id)
    trained("study", "tiny", "--device", "cpu")
    assert tracker.get(launched).tags[schema.TAG_STATUS] == "complete"


def test_run_reports_also_when_a_run_broke(registry, workplace, monkeypatch):
    genuine = Trainer.begin_epoch

    def breaks_for_fa(self):
        if self.task.spec.method == "fa":
            raise RuntimeError("no fa today")
        return genuine(self)

    monkeypatch.setattr(Trainer, "begin_epoch", breaks_for_fa)
    result = registry("run", "tiny", "--jobs", "1", "--device", "cpu")
    assert result.exit_code == 3
    assert "no fa today" in (workplace / "reports" / "index.html").read_text()
