"""Watching a run while it trains: which rules, and what is tagged when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fa_registry import bundled_files
from fa_registry.errors import Interrupted
from fa_registry.protocol.rule_evaluation import fires_now, first_fire
from fa_registry.protocol.rules import load_edition, shipped
from fa_registry.records import REPLACED
from fa_registry.studies.rule_monitor import (
    UNWATCHED,
    Monitor,
    MonitoredRules,
    checked_watch,
    is_watchable,
)
from fa_registry.studies.training_job import training_steps
from fa_registry.studies.training_plan import TrainingJob, finished_run
from fa_registry.tracking import schema, writer
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from fa_registry.training.loop import EpochRow, run_to_completion
from fa_registry.training.specs import parse_spec
from tests.builders import measurements
from tests.commands.conftest import TRAIN, fields, long
from tests.commands.test_training import assert_equal_runs, content, stop_after
from tests.helpers.audits import unpublished
from tests.helpers.tiny_tasks import trained as train_small
from tests.tracking.conftest import TINY

pytestmark = pytest.mark.long

# DFA at this rate, by epoch: largest growth 1.01 1.20 1.41 1.99 2.76 2.97, ‖g_L‖ of the mean loss 7.7e-3 … 9.1e-5 6.5e-5 6.1e-5
FAST = TINY | {"epochs": 5, "learning_rate": 0.05}
D1_AT, D2_AT = 3, 4


def early_edition(folder: Path) -> str:
    """The published edition with limits that a fast tiny DFA run crosses at D1_AT and D2_AT; returns the file's path."""
    text = (bundled_files.editions() / "2026-05.toml").read_text(encoding="utf-8")
    for before, after in (
        ('name = "2026-05"', 'name = "early"'),
        ("threshold = 50.0", "threshold = 1.7"),
        ("threshold = 1e-7", "threshold = 7.5e-5"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    path = folder / "early.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def row(epoch: int, **figures: float | None) -> EpochRow:
    return EpochRow(epoch, measurements(**figures))


def fires(run_id: str) -> dict[str, str]:
    tags = MlflowTracker().get(run_id).tags
    return {
        name.removeprefix("fa.first_fire."): value for name, value in tags.items() if name.startswith("fa.first_fire.")
    }


def test_a_rule_is_reported_once_at_the_first_epoch_it_fires():
    logged = []
    monitor = Monitor(MonitoredRules(load_edition("2026-05")), logged.append)
    for epoch, growth in enumerate((1.0, 51.0, 2.0, 60.0)):
        monitor.receive(row(epoch, growth=growth))
    monitor.receive(row(4, growth=1.0, g_norm=1e-9))
    assert logged[1:] == [{"fa.first_fire.D1": "1"}, {"fa.first_fire.D2": "4"}]
    assert monitor.fired == {"D1": 1, "D2": 4}
    again = Monitor(MonitoredRules(load_edition("2026-05")), logged.append, [row(0), row(1, growth=51.0)])
    logged.clear()
    again.receive(row(2, growth=70.0))  # what had fired before a stop is no news
    assert again.fired == {"D1": 1} and not any(logged)
    Monitor(UNWATCHED, logged.append).receive(row(0, growth=1e9))
    assert not any(logged)


@pytest.mark.parametrize(("stream", "fired"), [("residual", {"D1": 1}), ("", {"D1": 1}), (REPLACED, {})])
def test_a_rule_that_does_not_apply_to_the_network_never_fires(stream, fired):
    monitor = Monitor(MonitoredRules(load_edition("2026-12"), ("D1",)), lambda tags: None, stream=stream)
    for epoch, growth in enumerate((1.0, 60.0, 70.0)):
        monitor.receive(row(epoch, growth=growth))
    assert monitor.fired == fired and bool(monitor.ended_by) == bool(fired)


def test_what_has_no_value_yet_fires_when_it_has_one():
    monitor = Monitor(MonitoredRules(load_edition("2026-05")), lambda tags: None)
    monitor.receive(row(0, growth=None))
    assert monitor.fired == {}
    monitor.receive(row(1, growth=51.0))
    assert monitor.fired == {"D1": 1}


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ([dict(), dict(growth=51.0)], "D1 at epoch 1"),
        ([dict(growth=51.0, g_norm=1e-9)], "D1+D2 at epoch 0"),
        ([dict(g_norm=1e-9), dict(growth=51.0)], "D2 at epoch 0"),
        ([dict(), dict()], ""),
    ],
)
def test_the_reason_to_end_names_the_rules_that_fired_first(figures, reason):
    monitor = Monitor(MonitoredRules(load_edition("2026-05"), ("D1", "D2")), lambda tags: None)
    for epoch, changed in enumerate(figures):
        monitor.receive(row(epoch, **changed))
    assert monitor.ended_by == reason


def test_a_rule_that_may_not_end_the_run_does_not():
    monitor = Monitor(MonitoredRules(load_edition("2026-05"), ("D2",)), lambda tags: None)
    monitor.receive(row(0, growth=51.0))
    assert monitor.fired == {"D1": 0} and monitor.ended_by == ""


@pytest.mark.parametrize("name", shipped())
def test_only_rules_that_one_epoch_decides_are_watched(name):
    """is_watchable says before training what fires_now finds out on an epoch's real figures."""
    _, recorder, _ = train_small(epochs=1)
    measured = recorder.rows[-1].measurements
    for rule in load_edition(name).rules:
        assert is_watchable(rule) == (fires_now(rule, measured) is not None), rule.code


@pytest.mark.parametrize(
    ("edition", "stop_on", "problem"),
    [
        ("2026-05", "D1,D", "stop_on: "),
        ("2026-05", "D3", "stop_on: D3 cannot"),
        ("2026-04", "c", "stop_on: c cannot"),
        ("2026-5", "D1", "edition: "),
    ],
)
def test_a_watch_that_cannot_be_kept_is_refused(edition, stop_on, problem):
    problems = []
    checked_watch(edition, stop_on, problems)
    assert len(problems) == 1 and problems[0].startswith(problem)


def test_no_rule_ends_a_control():
    wish = [checked_watch("2026-05", stop_on, []).wish for stop_on in ("D1,D2", " D2, D1,", "D1", "")]
    assert wish[0] == wish[1] != wish[2] and wish[3] == "" == checked_watch("", "", []).wish
    watch = checked_watch("", "D1", [])
    assert watch.of("frozen").wish == watch.of("ladder_2").wish == ""
    assert watch.of("frozen").edition == watch.edition and watch.of("none") == watch


def test_the_tag_comes_with_the_epochs_points_while_the_run_still_trains(workplace, monkeypatch):
    seen = []
    monkeypatch.setattr(writer, "FLUSH_SECONDS", -1.0)  # each epoch is sent

    def look(news):
        (run,) = MlflowTracker().search({schema.TAG_KIND: "run"})
        seen.append((news[0], run.state, run.tags.get("fa.first_fire.D1"), news[3]))

    watch = checked_watch(early_edition(workplace), "", [])
    job = TrainingJob(parse_spec(FAST), MlflowTracker().uri, watch=watch)
    result = run_to_completion(training_steps(job, lambda: False, look))
    assert [tag for _, _, tag, _ in seen] == [None] * D1_AT + [str(D1_AT)] * 3
    assert {state for _, state, _, _ in seen} == {"RUNNING"}
    assert [fired for _, _, _, fired in seen][2:5] == [{}, {"D1": D1_AT}, {"D1": D1_AT, "D2": D2_AT}]
    assert result.fired == {"D1": D1_AT, "D2": D2_AT} and fires(result.run_id) == {"D1": "3", "D2": "4"}
    record = read_record(MlflowTracker(), MlflowTracker().get(result.run_id))
    assert {rule.code: first_fire(rule, record) for rule in watch.edition.rules} == {**result.fired, "D3": None}


@pytest.mark.parametrize("stopped_after", [long(D1_AT - 1), D1_AT, long(D2_AT)])
def test_a_resumed_run_neither_loses_nor_repeats_what_fired(workplace, monkeypatch, stopped_after):
    watch = checked_watch(early_edition(workplace), "", [])
    job = TrainingJob(parse_spec(FAST), MlflowTracker().uri, watch=watch)
    with pytest.raises(Interrupted):
        run_to_completion(training_steps(job, stop_after(stopped_after), lambda news: None))
    logged, genuine = [], MlflowTracker.log

    def log(self, run_id, points=(), tags=None, params=None):
        logged.extend(name for name in tags or {} if name.startswith("fa.first_fire."))
        genuine(self, run_id, points, tags, params)

    monkeypatch.setattr(MlflowTracker, "log", log)
    resumed = run_to_completion(training_steps(job, lambda: False, lambda news: None))
    assert resumed.resumed_from == stopped_after
    assert fires(resumed.run_id) == {"D1": "3", "D2": "4"}
    assert sorted(logged) == ["fa.first_fire.D1", "fa.first_fire.D2"]


def test_watching_does_not_touch_the_training(workplace):
    spec, uri = parse_spec(FAST), MlflowTracker().uri
    watched = TrainingJob(spec, uri, watch=checked_watch(early_edition(workplace), "", []))
    runs = [
        run_to_completion(training_steps(job, lambda: False, lambda news: None)).run_id
        for job in (watched, TrainingJob(spec, uri, yields=False))  # otherwise the watched run would be returned
    ]
    assert_equal_runs(*runs)


FILES = (schema.FINAL, schema.FEEDBACK, schema.FEEDBACK_CARD, schema.SERIES, schema.MEASUREMENTS)
STUDY = ("--jobs", "1", "--device", "cpu", "--json")


@pytest.fixture
def watch(workplace):
    """The watch of `--stop-on …` by an edition whose D1 fires at D1_AT in a fast tiny DFA run."""
    path = early_edition(workplace)
    return lambda stop_on: checked_watch(path, stop_on, [])


def train(watch, stop=lambda: False, yields=True, **changes):
    job = TrainingJob(parse_spec(FAST | changes), MlflowTracker().uri, watch=watch, yields=yields)
    return run_to_completion(training_steps(job, stop, lambda news: None))


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
    first = schema.step_checkpoint(8)
    assert content(early.run_id, first) == content(whole.run_id, first)
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


@pytest.mark.parametrize("stopped_after", [long(1), D1_AT - 1])
def test_interrupted_and_resumed_it_ends_where_an_undisturbed_one_does(watch, stopped_after):
    with pytest.raises(Interrupted):
        train(watch("D1"), stop_after(stopped_after))
    resumed, undisturbed = train(watch("D1")), train(watch("D1"), yields=False)
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
    assert json.loads(again.stdout)["stopped_early"] == [early]

    audit = fast_study("audit", "--study", "tiny", "--device", "cpu", "--json")
    (excluded,) = json.loads(audit.stdout)["report"]["excluded"]
    assert (audit.exit_code, excluded["run_id"], excluded["kind"]) == (3, early, "ended early")
    assert "D1" in excluded["reason"] and excluded["reason"] in (workplace / "reports" / "index.html").read_text()
    run = fast_study("run", "tiny", *STUDY[:-1], "--edition", "early.toml", "--stop-on", "D1")
    assert run.exit_code == 0  # `run` takes what it ended itself for a result
    assert early in fast_study("show", early[:8]).stdout

    whole = json.loads(fast_study("study", "tiny", *STUDY).stdout)
    assert len(whole["trained"]) == 1 and len(whole["present"]) == 2 and whole["stopped_early"] == []
    with unpublished():
        audit = fast_study("audit", "--study", "tiny", "--device", "cpu", "--json")
    assert json.loads(audit.stdout)["report"]["excluded"] == []


def test_train_says_what_ended_the_run_now_and_later(registry, workplace):
    early_edition(workplace)
    line = [*TRAIN, "--set", "learning_rate=0.05", "--epochs", "5", "--edition", "early.toml", "--stop-on", "D1,D2"]
    first = json.loads(registry(*line, "--json").stdout)
    assert (first["status"], first["ended_by"], first["first_fire"]) == ("stopped_early", "D1 at epoch 3", {"D1": 3})
    again = json.loads(registry(*line, "--json").stdout)
    assert (again["run_id"], again["trained"]) == (first["run_id"], False)


def test_what_cannot_end_a_run_is_refused_before_training(registry, workplace):
    for line in (
        (*TRAIN, "--epochs", "many", "--study", "tiny"),
        ("study", "tiny", "--jobs", "many"),
        ("run", "tiny", "--jobs", "many"),
    ):
        assert {"stop_on", line[line.index("many") - 1][2:]} <= set(fields(registry(*line, "--stop-on", "D1,DD2")))
    assert MlflowTracker().search({}) == []


def test_a_control_cannot_be_ended_by_a_rule(registry):
    result = registry(*TRAIN, "--method", "bp", "--control", "frozen", "--stop-on", "D1")
    assert fields(result) == ["stop_on"]


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
