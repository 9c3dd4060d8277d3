"""The study command: trains what is missing, reports what is there, resumes where it was stopped."""

from __future__ import annotations

import json

import pytest

from fa_registry import api
from fa_registry.api import study
from fa_registry.errors import InvalidFields
from fa_registry.protocol.rules import load_edition
from fa_registry.studies.study import Study, load_study, names
from fa_registry.studies.study_command import study_note, without_frozen
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.trainer import Trainer
from tests.commands.conftest import STUDY, fields
from tests.helpers.tiny_tasks import tiny_spec

pytestmark = pytest.mark.long


def test_a_second_study_trains_nothing_and_says_so(trained):
    again = trained("study", "tiny", "--device", "cpu")
    assert again.exit_code == 0
    assert len(MlflowTracker().search({schema.TAG_KIND: "run"})) == 4


def test_runs_name_the_study_and_are_listed_with_it(trained):
    tracker = MlflowTracker()
    (parent,) = tracker.search({schema.TAG_KIND: "study"})
    assert parent.tags[schema.TAG_STATUS] == "complete" and parent.state == "FINISHED"
    runs = tracker.search({schema.TAG_STUDY_RUN: parent.run_id})
    assert {run.tags["fa.method"] for run in runs} == {"bp", "fa", "dfa", "frozen"}
    assert not any("mlflow.parentRunId" in run.tags for run in runs)  # MLflow's table would fold them away


def test_one_that_fails_is_named_and_the_others_are_trained(registry, workplace, monkeypatch, in_this_process):
    genuine = Trainer.begin_epoch

    def breaks_for_fa(self):
        if self.setup.spec.method == "fa":
            raise RuntimeError("no fa today")
        return genuine(self)

    monkeypatch.setattr(Trainer, "begin_epoch", breaks_for_fa)
    result = registry("study", "tiny", "--jobs", "1", "--device", "cpu", "--json")
    outcome = json.loads(result.stdout)
    assert result.exit_code == 1 and len(outcome["trained"]) == 3
    (name,) = outcome["failed"]
    assert name.startswith("fa ·") and "no fa today" in outcome["failed"][name]
    assert registry("run", "tiny", "--jobs", "1", "--device", "cpu").exit_code == 3  # and it is reported
    assert "no fa today" in (workplace / "reports" / "index.html").read_text()


def test_a_stopped_study_goes_on_from_the_same_epoch_to_the_same_weights(
    registry, workplace, monkeypatch, in_this_process
):
    store = f"sqlite:///{workplace / 'mlflow.db'}"
    genuine = Trainer.begin_epoch

    def stops_after_one_epoch(self):
        stopping.append(1)
        return genuine(self)

    stopping: list[int] = []
    monkeypatch.setattr(Trainer, "begin_epoch", stops_after_one_epoch)
    monkeypatch.setattr("fa_registry.studies.execution.stop_on_signal", lambda: _always(lambda: bool(stopping)))
    stopped = study("tiny", device="cpu", store=store, jobs=1)
    assert stopped.exit_code == 130 and len(stopped.stopped) == 4 and not stopped.trained
    assert [run.state for run in MlflowTracker(store).search({schema.TAG_KIND: "run"})] == ["KILLED"]

    monkeypatch.setattr("fa_registry.studies.execution.stop_on_signal", lambda: _always(lambda: False))
    resumed = study("tiny", device="cpu", store=store, jobs=1)
    fresh = study("tiny", device="cpu", store=store, jobs=1, force=True)
    assert len(resumed.trained) == len(fresh.trained) == 4
    tracker = MlflowTracker(store)
    for before, after in zip(resumed.trained, fresh.trained, strict=True):
        for name in (schema.FINAL, schema.SERIES, schema.MEASUREMENTS):
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
    assert fields(registry("study", "tiny")) == ["recipe.speed"]
    path.write_text(STUDY.replace('edition = "2026-05"', 'edition = "2099-01"'))
    assert sorted(fields(registry("study", "tiny", "--jobs", "many"))) == ["edition", "jobs"]
    assert MlflowTracker().search({}) == []


def test_a_study_that_mlflow_started_ends_complete_also_when_nothing_is_left_to_train(trained, monkeypatch):
    tracker = MlflowTracker()
    launched = tracker.create("launched", {}, {})
    monkeypatch.setenv("MLFLOW_RUN_ID", launched)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", tracker.experiment_id)
    trained("study", "tiny", "--device", "cpu")
    assert tracker.get(launched).tags[schema.TAG_STATUS] == "complete"


NO_FROZEN = STUDY + "\n[controls]\nfrozen = false\n"


def study_of(workplace, text):
    path = workplace / "study.toml"
    path.write_text(text, encoding="utf-8")
    return load_study(str(path))


def test_a_setting_without_its_frozen_control_is_refused_before_anything_is_trained(workplace):
    study_of(workplace, NO_FROZEN)
    with pytest.raises(InvalidFields) as caught:
        api.study("study.toml", device="cpu", jobs=1)
    (problem,) = caught.value.problems
    assert problem.steps == ("controls", "frozen") and problem.file == "study.toml"
    assert problem.text.startswith("setting resmlp-16x2") and "seed 1" in problem and "D3" in problem


def test_every_setting_and_every_seed_that_lacks_it_is_named(workplace):
    """A control of one seed does not stand in for another."""
    grid = STUDY[STUDY.index("[[grid]]") :]
    further = grid.replace("[1]", "[1, 2]\nepochs = [5]")
    study = study_of(workplace, NO_FROZEN.replace("seeds = [1]", "seeds = [1, 3]") + further)
    problems = without_frozen(study, load_edition("2026-12"))
    assert ["seeds 1, 3" in problems[0], "seeds 1, 2" in problems[1], len(problems)] == [True, True, 2]
    third = grid.replace("seeds = [1]", "seeds = [3]") + "controls = { frozen = false }\n"
    (problem,) = without_frozen(study_of(workplace, STUDY + third), load_edition("2026-12"))
    assert "seed 3" in problem


def test_an_edition_that_skips_the_rule_without_a_control_needs_none(workplace):
    study = study_of(workplace, NO_FROZEN)
    assert [rule.without_reference for rule in load_edition("2026-04").rules if rule.reference] == ["skipped"]
    assert without_frozen(study, load_edition("2026-04")) == []
    assert without_frozen(study, load_edition("2026-12")) != []


def test_a_task_without_classes_needs_none():
    study = load_study("toy_lq")
    assert not any(spec.control == "frozen" for spec in study.specs)
    assert without_frozen(study, load_edition("2026-12")) == []


@pytest.mark.parametrize("overrides", [{}, {"data": "digits", "scale": "0.02"}])
def test_every_shipped_study_and_its_variant_train_what_they_are_compared_with(overrides):
    for name in names():
        if overrides and "tokens" in name:  # a language model has no variant on images
            continue
        study = load_study(name, {**overrides, "device": "cpu"})
        assert without_frozen(study, load_edition(study.edition)) == [], name


def test_a_title_is_no_markup_and_a_study_without_cost_says_none():
    note = study_note(Study("s", "<script>alert(1)</script> [x](y)", "2026-05", "", (tiny_spec(),)))
    assert "<script>" not in note and "[x](y)" not in note and "Cost" not in note
    assert "1 run" in note and "(3)" in note
