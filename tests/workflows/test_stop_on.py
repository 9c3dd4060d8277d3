"""--stop-on: a run ends where a rule fires, keeps its files, and is never taken for a complete one."""

from __future__ import annotations

import json

import pytest

from fa_registry.errors import Interrupted
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from fa_registry.training.loop import in_one_go
from fa_registry.training.specs import parse_spec
from fa_registry.workflows.training import TrainingJob, finished_run, training_steps
from fa_registry.workflows.watching import checked_watch
from tests.workflows.conftest import TRAIN
from tests.workflows.test_monitor import D1_AT, FAST, early_edition, fires
from tests.workflows.test_resume import assert_equal_runs, content, stop_after

FILES = (schema.INITIAL, schema.FINAL, schema.FEEDBACK, schema.FEEDBACK_CARD, schema.SERIES, schema.MEASUREMENTS)
STUDY = ("--jobs", "1", "--device", "cpu", "--json")


@pytest.fixture
def watch(workplace):
    """The watch of `--stop-on …` by an edition whose D1 fires at D1_AT in a fast tiny DFA run."""
    path = early_edition(workplace)
    return lambda stop_on: checked_watch(path, stop_on, [])


def train(watch, stop=lambda: False, **changes):
    job = TrainingJob(parse_spec(FAST | changes), MlflowTracker().uri, watch=watch)
    return in_one_go(training_steps(job, stop, lambda news: None))


@pytest.fixture
def fast_study(registry, workplace):
    """The registry with tiny/study.toml made of one BP and one fast DFA run, their control, and the edition early.toml."""
    path = workplace / "tiny" / "study.toml"
    text = path.read_text().replace("epochs = 2", "epochs = 5\nlearning_rate = 0.05").replace('"fa", ', "")
    path.write_text(text.replace("seeds = [1]", "seeds = [7]"))
    early_edition(workplace)
    return registry


def test_a_run_ends_at_the_epoch_in_which_the_rule_fires_with_all_its_files(watch):
    result = train(watch("D2,D1"))
    run = MlflowTracker().get(result.run_id)
    assert (result.status, result.epochs, result.ended_by) == ("stopped_early", D1_AT, "D1 at epoch 3")
    assert (run.state, run.tags[schema.TAG_STATUS]) == ("FINISHED", "stopped_early")
    assert run.tags[schema.TAG_STOPPED_ON] == "D1 at epoch 3" and fires(result.run_id) == {"D1": "3"}
    record = read_record(MlflowTracker(), run)
    assert len(record.trajectory["accuracy"]) == D1_AT + 1 and record.provenance["epochs_run"] == D1_AT
    assert all(MlflowTracker().artifact(result.run_id, name) for name in FILES)


def test_up_to_its_end_it_is_the_run_it_would_have_been(watch):
    early, whole = train(watch("D1")), train(watch(""))

    def table(run_id):
        record = read_record(MlflowTracker(), MlflowTracker().get(run_id))
        return {name: list(line)[: D1_AT + 1] for name, line in record.trajectory.items()}

    assert table(early.run_id) == table(whole.run_id)
    assert content(early.run_id, schema.INITIAL) == content(whole.run_id, schema.INITIAL)
    assert content(early.run_id, schema.FINAL) != content(whole.run_id, schema.FINAL)


def test_it_is_there_for_the_same_wish_alone(watch):
    tracker, spec = MlflowTracker(), parse_spec(FAST)
    early = train(watch("D1")).run_id
    assert finished_run(tracker, spec) is None
    assert finished_run(tracker, spec, watch("D1,D2")) is None
    assert finished_run(tracker, spec, checked_watch("2026-05", "D1", [])) is None
    assert finished_run(tracker, spec, watch("D1")).run_id == early
    whole = train(watch("")).run_id
    assert finished_run(tracker, spec).run_id == finished_run(tracker, spec, watch("D1")).run_id == whole


@pytest.mark.parametrize(
    ("changes", "status", "epochs"),
    [
        ({"epochs": D1_AT}, "complete", D1_AT),
        ({"learning_rate": 1e30}, "diverged", 1),
        ({"method": "bp"}, "complete", 5),
    ],
)
def test_a_run_that_lacks_nothing_is_not_stopped_early(watch, changes, status, epochs):
    """Its last epoch, or the one in which it diverged, was its end anyway; and a rule that never fires ends nothing."""
    result = train(watch("D1"), **changes)
    assert (result.status, result.epochs, result.ended_by) == (status, epochs, "")
    assert finished_run(MlflowTracker(), parse_spec(FAST | changes)).run_id == result.run_id


@pytest.mark.parametrize("stopped_after", [1, D1_AT - 1])
def test_interrupted_and_resumed_it_ends_where_an_undisturbed_one_does(watch, stopped_after):
    with pytest.raises(Interrupted):
        train(watch("D1"), stop_after(stopped_after))
    resumed, undisturbed = train(watch("D1")), train(watch("D1"))
    assert (resumed.resumed_from, resumed.epochs) == (stopped_after, D1_AT)
    assert_equal_runs(resumed.run_id, undisturbed.run_id)


def test_a_state_from_beyond_its_end_is_not_where_it_goes_on(watch, workplace):
    """Stopped by a person at epoch 4, asked for again with --stop-on: it must end at 3, and leave the other's state alone."""
    with pytest.raises(Interrupted):
        train(watch(""), stop_after(4))
    assert (train(watch("D1")).epochs, train(watch("")).resumed_from) == (D1_AT, 4)
    assert not list((workplace / ".fa_registry" / "resume").iterdir())


def test_a_study_counts_them_apart_trains_them_anew_without_and_the_audit_says_why(fast_study, workplace):
    asked = ("study", "tiny", *STUDY, "--edition", "early.toml", "--stop-on", "D1")
    first = fast_study(*asked)
    outcome = json.loads(first.stdout)
    assert first.exit_code == 0 and (len(outcome["trained"]), len(outcome["stopped_early"])) == (2, 1)
    (early,) = outcome["stopped_early"]
    (parent,) = MlflowTracker().search({schema.TAG_KIND: "study"})
    assert (parent.state, parent.tags[schema.TAG_STATUS]) == ("FINISHED", "complete")

    again = fast_study(*asked)
    assert "all 3 runs are complete or stopped early as asked (1), nothing to train" in again.stderr
    assert json.loads(again.stdout)["stopped_early"] == [early]

    audit = fast_study("audit", "--study", "tiny", "--device", "cpu", "--json")
    (excluded,) = json.loads(audit.stdout)["report"]["excluded"]
    reason = "ended early at epoch 3 because D1 fired (--stop-on)"
    assert (audit.exit_code, excluded["run_id"], excluded["reason"]) == (3, early, reason)
    assert reason in (workplace / "reports" / "index.html").read_text()
    assert early in fast_study("show", early[:8]).stdout

    whole = json.loads(fast_study("study", "tiny", *STUDY).stdout)
    assert len(whole["trained"]) == 1 and len(whole["present"]) == 2 and whole["stopped_early"] == []
    audit = fast_study("audit", "--study", "tiny", "--device", "cpu", "--json")
    assert json.loads(audit.stdout)["report"]["excluded"] == []


def test_run_takes_what_it_ended_itself_for_a_result(fast_study):
    """The audit alone would call it incomplete: exit 3."""
    result = fast_study("run", "tiny", "--jobs", "1", "--device", "cpu", "--edition", "early.toml", "--stop-on", "D1")
    assert result.exit_code == 0, result.stderr
    assert "2 trained, 1 stopped early" in result.stdout
    assert "ended early at epoch 3 because D1 fired (--stop-on)" in result.stdout
    assert "stopped early, D1 at epoch 3" in result.stderr
    (as_it_happened,) = [line for line in result.stderr.splitlines() if line.endswith(": D1 fired at epoch 3")]
    assert as_it_happened.endswith(
        "dfa · resmlp-16x2 · digits · 5 epochs · learning_rate=0.05 · s7: D1 fired at epoch 3"
    )


def test_train_says_what_ended_the_run_now_and_later(registry, workplace):
    early_edition(workplace)
    line = [*TRAIN, "--set", "learning_rate=0.05", "--epochs", "5", "--edition", "early.toml", "--stop-on", "D1,D2"]
    first = json.loads(registry(*line, "--json").stdout)
    assert (first["status"], first["ended_by"], first["first_fire"]) == ("stopped_early", "D1 at epoch 3", {"D1": 3})
    again = registry(*line)
    assert again.exit_code == 0 and f"run {first['run_id']}: already stopped early (D1 at epoch 3)" in again.stdout
    assert "stopped early (D1 at epoch 3)" in registry(*line, "--force").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--stop-on", "D1,DD2"), "stop_on: unknown rule of edition 2026-05 'DD2' (did you mean 'D2'?)"),
        (("--stop-on", "D3"), "stop_on: D3 cannot be judged while a run trains"),
        (("--edition", "2026-06"), "edition: unknown edition '2026-06'"),
    ],
)
def test_what_cannot_end_a_run_is_refused_before_training(registry, workplace, arguments, words):
    for line in (
        (*TRAIN, "--epochs", "many", "--study", "tiny"),
        ("study", "tiny", "--jobs", "many"),
        ("run", "tiny", "--jobs", "many"),
    ):
        result = registry(*line, *arguments)
        assert result.exit_code == 2 and words in result.stderr and "found 'many'" in result.stderr
    assert MlflowTracker().search({}) == []


def test_a_control_cannot_be_ended_by_a_rule(registry):
    result = registry(*TRAIN, "--method", "bp", "--control", "frozen", "--stop-on", "D1")
    assert result.exit_code == 2 and "the frozen control is never judged, so no rule ends it" in result.stderr


def test_the_controls_of_a_study_are_trained_to_the_end(fast_study, workplace):
    """Even by a rule that fires at once: the other runs are measured against them."""
    path = workplace / "early.toml"
    path.write_text(path.read_text().replace("threshold = 1.7", "threshold = 0.0"))
    result = fast_study("study", "tiny", *STUDY, "--edition", "early.toml", "--stop-on", "D1")
    outcome = json.loads(result.stdout)
    assert (len(outcome["trained"]), len(outcome["stopped_early"])) == (1, 2)
    (control,) = outcome["trained"]
    run = MlflowTracker().get(control)
    assert run.tags["fa.method"] == "frozen" and fires(control)["D1"] == "0" and schema.TAG_STOP_ON not in run.tags
