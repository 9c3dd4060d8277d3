"""watch: what a study's runs are at, from one search a look."""

from __future__ import annotations

import json

import pytest

from fa_registry.inspection.inspect_runs import StatusPoller, is_anybody_at_work
from fa_registry.tracking import schema
from fa_registry.tracking.base import Point
from fa_registry.tracking.lease import HeartbeatMonitor
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import call


def begin(tracker, epoch="3 of 10", **tags):
    return tracker.create("dfa · digits · s1", {schema.TAG_KIND: "run", schema.TAG_EPOCH: epoch, **tags}, {})


@pytest.fixture
def tracker(tmp_path):
    return MemoryTracker(tmp_path)


@pytest.fixture
def clock():
    now = [1000.0]

    def read():
        return now[0]

    read.passes = lambda seconds: now.__setitem__(0, now[0] + seconds)
    return read


def test_speed_and_time_left_are_of_what_was_seen(tracker, clock):
    run_id = begin(tracker, **{schema.first_fire_tag("D1"): "2", schema.TAG_FIRST_FIRE_BY: "2026-05"})
    tracker.log(run_id, [Point("h_L", 12.5, 3), Point("accuracy/test", 0.5, 3)])
    watching = StatusPoller(tracker, clock=clock)
    watching.poll()
    clock.passes(4)
    tracker.log(run_id, tags={schema.TAG_EPOCH: "5 of 10"})
    (row,) = watching.poll()
    assert (row.epoch, row.epochs, row.rate, row.left) == (5, 10, 0.5, 10.0)
    assert (row.h_L, row.accuracy, row.g_L, row.fired) == (12.5, 0.5, None, {"D1": "2"})


@pytest.mark.parametrize(
    ("resumed", "rate"), [({}, 0.3), ({schema.TAG_RESUMED: "2"}, 0.1), ({schema.TAG_RESUMED: "x"}, 0.3)]
)
def test_epochs_before_it_was_resumed_took_none_of_its_time(tracker, resumed, rate):
    run_id = begin(tracker, **resumed)
    began = tracker.get(run_id).started / 1000
    (row,) = StatusPoller(tracker, clock=lambda: began + 10).poll()
    assert row.rate == pytest.approx(rate) and row.left == pytest.approx(7 / rate)


@pytest.mark.parametrize("written", ["", "soon", "3 of 99999999", "-1 of 4", "9 of 4 of 2"])
def test_a_tag_that_says_nothing_is_no_epoch(tracker, clock, written):
    begin(tracker, written)
    (row,) = StatusPoller(tracker, clock=clock).poll()
    assert row.epoch is None and row.left is None


def test_a_loop_of_open_end_has_no_time_left(tracker, clock):
    begin(tracker, "3 of ?")
    (row,) = StatusPoller(tracker, clock=clock).poll()
    assert row.epoch == 3 and row.epochs is None and row.left is None


def test_a_run_that_gives_no_sign_is_seen_to_be_silent(tracker, clock):
    begin(tracker, **{schema.TAG_HEARTBEAT: "1 of 120 s"})
    watching = StatusPoller(tracker, clock=clock, signs=HeartbeatMonitor(clock))
    watching.poll()
    clock.passes(10)
    (row,) = watching.poll()
    assert row.silent == 10


def test_a_trained_study_is_watched_by_one_search_and_ends_at_once(trained, monkeypatch):
    asked = []
    genuine = MlflowTracker.search
    monkeypatch.setattr(MlflowTracker, "search", lambda *given, **named: asked.append(1) or genuine(*given, **named))
    result = call("watch", "--study", "tiny", "--json")
    rows = json.loads(result.stdout)
    assert result.exit_code == 0 and len(asked) == 1 and len(rows) == 4
    assert {(row["status"], row["epoch"], row["epochs"]) for row in rows} == {("complete", 2, 2)}
    assert all(row["h_L"] is not None and row["rate"] is None for row in rows)


def test_people_see_a_table_and_no_name_reaches_the_terminal_raw(trained):
    tracker = MlflowTracker()
    tracker.create(
        "evil\x1b[2J\nname", {schema.TAG_KIND: "run", schema.TAG_EPOCH: "1 of 2", schema.TAG_STUDY: "tiny"}, {}
    )
    shown = call("watch", "--once").stdout
    assert "2 of 2" in shown and "‖h_L‖" in shown and "\x1b" not in shown


def test_a_store_that_is_not_there_is_not_made(workplace):
    result = call("watch", "--store", "sqlite:///nowhere.db")
    assert result.exit_code == 2 and "nowhere.db" in result.stderr and not (workplace / "nowhere.db").exists()


def test_it_continues_until_no_run_is_at_work(tracker, clock):
    run_id = begin(tracker)
    watching = StatusPoller(tracker, clock=clock)
    assert is_anybody_at_work(watching.poll())
    tracker.finish(run_id, "KILLED")
    assert not is_anybody_at_work(watching.poll())
