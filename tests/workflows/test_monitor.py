"""Watching a run while it trains: which rules, and what is tagged when."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_registry import resources
from fa_registry.errors import Interrupted
from fa_registry.protocol.judges import fires_now, first_fire
from fa_registry.protocol.rules import load_edition, shipped
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from fa_registry.training.loop import EpochRow, in_one_go
from fa_registry.training.specs import parse_spec
from fa_registry.workflows.training import TrainingJob, training_steps
from fa_registry.workflows.watching import UNWATCHED, Monitor, Watch, checked_watch, fired_words, is_watchable
from tests.builders import measurements
from tests.helpers.small import trained as train_small
from tests.tracking.conftest import TINY
from tests.workflows.test_resume import assert_equal_runs, stop_after

# DFA at this rate, by epoch: largest growth 1.01 1.20 1.41 1.99 2.76 2.97, ‖g_L‖ of the mean loss 7.7e-3 … 9.1e-5 6.5e-5 6.1e-5
FAST = TINY | {"epochs": 5, "learning_rate": 0.05}
D1_AT, D2_AT = 3, 4


def early_edition(folder: Path) -> str:
    """The published edition with limits that a fast tiny DFA run crosses at D1_AT and D2_AT; returns the file's path."""
    text = (resources.editions() / "2026-05.toml").read_text(encoding="utf-8")
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


def test_a_rule_is_told_once_at_the_first_epoch_it_fires():
    told = []
    monitor = Monitor(Watch(load_edition("2026-05")), told.append)
    for epoch, growth in enumerate((1.0, 51.0, 2.0, 60.0)):
        monitor.hear(row(epoch, growth=growth))
    monitor.hear(row(4, growth=1.0, g_norm=1e-9))
    assert told[1:] == [{"fa.first_fire.D1": "1"}, {"fa.first_fire.D2": "4"}]
    assert monitor.fired == {"D1": 1, "D2": 4}
    assert fired_words(monitor.fired) == "D1 fired at epoch 1, D2 fired at epoch 4"


def test_what_had_fired_before_a_stop_is_kept_and_is_no_news():
    told = []
    rows = [row(0), row(1, growth=51.0)]
    monitor = Monitor(Watch(load_edition("2026-05")), told.append, rows)
    monitor.hear(row(2, growth=70.0))
    assert [tags.get("fa.first_fire.D1") for tags in told] == ["1"]
    assert told[0][schema.TAG_FIRST_FIRE_BY].startswith("2026-05 ")


def test_what_has_no_value_yet_fires_when_it_has_one():
    monitor = Monitor(Watch(load_edition("2026-05")), lambda tags: None)
    monitor.hear(row(0, growth=None))
    assert monitor.fired == {}
    monitor.hear(row(1, growth=51.0))
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
    monitor = Monitor(Watch(load_edition("2026-05"), ("D1", "D2")), lambda tags: None)
    for epoch, changed in enumerate(figures):
        monitor.hear(row(epoch, **changed))
    assert monitor.ended_by == reason


def test_a_rule_that_may_not_end_the_run_does_not():
    monitor = Monitor(Watch(load_edition("2026-05"), ("D2",)), lambda tags: None)
    monitor.hear(row(0, growth=51.0))
    assert monitor.fired == {"D1": 0} and monitor.ended_by == ""


def test_nothing_is_watched_where_nothing_was_asked_for():
    told = []
    Monitor(UNWATCHED, told.append).hear(row(0, growth=1e9))
    assert [tags for tags in told if tags] == []


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
        ("2026-05", "D1,D", "stop_on: unknown rule of edition 2026-05 'D' (did you mean 'D3'?); known: D1, D2, D3"),
        ("2026-05", "D3", "stop_on: D3 cannot be judged while a run trains"),
        ("2026-04", "c", "stop_on: c cannot be judged while a run trains"),
        ("2026-5", "D1", "edition: unknown edition '2026-5' (did you mean '2026-05'?)"),
    ],
)
def test_a_watch_that_cannot_be_kept_is_refused(edition, stop_on, problem):
    problems = []
    checked_watch(edition, stop_on, problems)
    assert len(problems) == 1 and problems[0].startswith(problem)
    assert "cannot" not in problem or "expected of edition" in problems[0]


def test_equal_wishes_are_equal_whatever_the_order_and_differ_with_the_rules():
    def wish(stop_on, edition="2026-05"):
        return checked_watch(edition, stop_on, []).wish

    assert wish("D1,D2") == wish(" D2, D1,") != wish("D1") != wish("D1", "2026-11")
    assert wish("") == "" == checked_watch("", "", []).wish


def test_no_rule_ends_a_control():
    watch = checked_watch("", "D1", [])
    assert watch.of("frozen").wish == watch.of("ladder_2").wish == ""
    assert watch.of("frozen").edition == watch.edition and watch.of("none") == watch


def test_the_tag_is_there_while_the_run_still_trains(workplace):
    seen = []

    def look(news):
        (run,) = MlflowTracker().search({schema.TAG_KIND: "run"})
        seen.append((news[0], run.state, run.tags.get("fa.first_fire.D1"), news[3]))

    watch = checked_watch(early_edition(workplace), "", [])
    job = TrainingJob(parse_spec(FAST), MlflowTracker().uri, watch=watch)
    result = in_one_go(training_steps(job, lambda: False, look))
    assert [tag for _, _, tag, _ in seen] == [None] * D1_AT + [str(D1_AT)] * 3
    assert {state for _, state, _, _ in seen} == {"RUNNING"}
    assert [fired for _, _, _, fired in seen][2:5] == [{}, {"D1": D1_AT}, {"D1": D1_AT, "D2": D2_AT}]
    assert result.fired == {"D1": D1_AT, "D2": D2_AT} and fires(result.run_id) == {"D1": "3", "D2": "4"}
    record = read_record(MlflowTracker(), MlflowTracker().get(result.run_id))
    assert {rule.code: first_fire(rule, record) for rule in watch.edition.rules} == {**result.fired, "D3": None}


@pytest.mark.parametrize("stopped_after", [D1_AT - 1, D1_AT, D2_AT])
def test_a_resumed_run_neither_loses_nor_repeats_what_fired(workplace, monkeypatch, stopped_after):
    watch = checked_watch(early_edition(workplace), "", [])
    job = TrainingJob(parse_spec(FAST), MlflowTracker().uri, watch=watch)
    with pytest.raises(Interrupted):
        in_one_go(training_steps(job, stop_after(stopped_after), lambda news: None))
    told, genuine = [], MlflowTracker.log

    def log(self, run_id, points=(), tags=None):
        told.extend(name for name in tags or {} if name.startswith("fa.first_fire."))
        genuine(self, run_id, points, tags)

    monkeypatch.setattr(MlflowTracker, "log", log)
    resumed = in_one_go(training_steps(job, lambda: False, lambda news: None))
    assert resumed.resumed_from == stopped_after
    assert fires(resumed.run_id) == {"D1": "3", "D2": "4"} and sorted(told) == ["fa.first_fire.D1", "fa.first_fire.D2"]


def test_watching_does_not_touch_the_training(workplace):
    spec, uri = parse_spec(FAST), MlflowTracker().uri
    watched = TrainingJob(spec, uri, watch=checked_watch(early_edition(workplace), "", []))
    runs = [
        in_one_go(training_steps(job, lambda: False, lambda news: None)).run_id
        for job in (watched, TrainingJob(spec, uri))
    ]
    assert_equal_runs(*runs)
