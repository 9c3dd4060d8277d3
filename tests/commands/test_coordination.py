"""What other processes train of a study: waited for, taken over, left alone; and what a person stopped."""

from __future__ import annotations

import json
import platform
import sqlite3
import threading
import time
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest
import requests

import fa_registry.studies.execution  # noqa: F401 - loaded first by a command, it would keep what a test has put in a name's place
from fa_registry.errors import StoreError
from fa_registry.studies import coordination, execution, training_job
from fa_registry.studies.options import RunSelector
from fa_registry.studies.training_plan import TrainingJob, newest_finished
from fa_registry.tracking import client, schema
from fa_registry.tracking.lease import HELD, HeartbeatMonitor, heartbeat_tag
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.run_state import GAP
from fa_registry.tracking.store_errors import StoreRefusal
from fa_registry.training.loop import run_to_completion
from tests.commands.conftest import TRAIN, fields

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("in_this_process")]
FAR = "another-machine:1:1:1"
STUDY = ("study", "tiny", "--device", "cpu", "--jobs", "1")


@pytest.fixture
def tracker(registry, workplace):
    """Of a store for the tiny study without one of its methods: three runs."""
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace('"fa", ', ""))
    return MlflowTracker(f"sqlite:///{workplace / 'mlflow.db'}")


def held(tracker, process=FAR, lease=10):
    """A run of the first spec of the tiny study whose process is at work elsewhere, and the spec's identity."""
    spec = RunSelector("tiny", overrides={"device": "cpu"}).as_asked.specs[0]
    tags = {**schema.tags(spec, "somewhere", "tiny"), schema.TAG_PROCESS: process, schema.TAG_LEASE: HELD}
    return tracker.create("held", {**tags, **heartbeat_tag(0, lease)}, schema.params(spec)), spec.identity


def meanwhile(monkeypatch, happens):
    """What others do each time that this process waits for them."""
    clock = SimpleNamespace(sleep=lambda seconds: happens(), monotonic=time.monotonic)
    monkeypatch.setattr(coordination, "time", clock)
    monkeypatch.setattr(execution, "time", clock)


def attempts(tracker, identity):
    return [run for run in tracker.search({schema.TAG_SPEC: identity}) if run.state == "FINISHED"]


def test_a_study_waits_for_what_others_train_and_is_complete_with_it(registry, tracker, monkeypatch):
    run_id, identity = held(tracker)

    def ended():
        tracker.log(run_id, tags={schema.TAG_STATUS: "complete"})
        tracker.finish(run_id, "FINISHED")

    meanwhile(monkeypatch, ended)
    result = registry(*STUDY, "--json")
    summary = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert summary["elsewhere"] == [run_id] and len(summary["trained"]) == 2
    (study,) = tracker.search({schema.TAG_KIND: "study"})  # its own run gives a heartbeat too
    assert study.tags[schema.TAG_HEARTBEAT].endswith(" of 120 s") and schema.TAG_LEASE not in study.tags
    assert [run.run_id for run in attempts(tracker, identity)] == [run_id]


def test_it_takes_over_what_gives_no_sign_for_its_lease(registry, tracker, monkeypatch):
    run_id, identity = held(tracker)
    meanwhile(monkeypatch, lambda: None)
    clock = iter(range(0, 10**6, 4))  # seconds pass with every look
    monkeypatch.setattr(
        "fa_registry.studies.execution.HeartbeatMonitor", lambda: coordination.HeartbeatMonitor(lambda: next(clock))
    )
    result = registry(*STUDY, "--json")
    assert result.exit_code == 0 and len(json.loads(result.stdout)["trained"]) == 3, result.output
    assert tracker.get(run_id).state == "KILLED" and tracker.get(run_id).tags[schema.TAG_STATUS] == "failed"
    assert len(attempts(tracker, identity)) == 1


def test_a_worker_leaves_it_alone_and_ends(registry, tracker):
    run_id, identity = held(tracker)
    result = registry("worker", "tiny", "--device", "cpu", "--jobs", "1", "--json")
    summary = json.loads(result.stdout)
    assert result.exit_code == 0 and len(summary["trained"]) == 2 and len(summary["left"]) == 1, result.output
    assert tracker.get(run_id).state == "RUNNING" and not attempts(tracker, identity)
    assert not tracker.search({schema.TAG_KIND: "study"})


def test_with_force_no_question_is_asked(registry, tracker):
    run_id, identity = held(tracker)
    assert registry(*STUDY, "--force").exit_code == 0
    (forced,) = attempts(tracker, identity)
    assert tracker.get(run_id).state == "RUNNING"
    assert forced.tags[schema.TAG_LEASE] == HELD and forced.params  # else others would wait for a run that is choosing


def test_train_too_waits_and_says_which_run_it_is(registry, tracker, monkeypatch):
    first = json.loads(registry(*TRAIN, "--json").stdout)["run_id"]
    run = tracker.get(first)
    tracker.discard(first)
    own = {name: value for name, value in run.tags.items() if name.startswith("fa.")}
    tags = {
        **own,
        schema.TAG_STATUS: "running",
        schema.TAG_PROCESS: FAR,
        schema.TAG_LEASE: HELD,
        **heartbeat_tag(0, 10),
    }
    other = tracker.create("held", tags, run.params)

    meanwhile(monkeypatch, lambda: tracker.log(other, tags={schema.TAG_STATUS: "complete"}))
    result = registry(*TRAIN, "--json")
    assert json.loads(result.stdout)["run_id"] == other and not json.loads(result.stdout)["trained"], result.output


def test_another_machine_that_writes_to_the_same_sqlite_file_is_refused_with_what_to_do(registry, tracker, monkeypatch):
    run_id, _ = held(tracker, lease=600)
    number = iter(range(1, 10**6))
    meanwhile(monkeypatch, lambda: tracker.log(run_id, tags=heartbeat_tag(next(number), 600)))
    result = registry(*STUDY)
    assert result.exit_code == StoreError.exit_code
    assert "another-machine" in result.output and "Traceback" not in result.output


def test_only_a_worker_waits_for_a_server_that_is_away_when_it_begins(registry, silent_address, monkeypatch):
    """A queue starts it at any moment, and nobody watches; who types `study` may have mistyped the address."""
    clock, waits = iter(range(0, 10**6, 20)), []
    own = SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=waits.append)
    monkeypatch.setattr(client, "time", own)
    for command, waited in (STUDY, False), (("worker", "tiny", "--device", "cpu"), True):
        result = registry(*command, "--store", silent_address)
        assert (result.exit_code, bool(waits)) == (StoreError.exit_code, waited), result.output


def test_a_tag_that_a_person_sets_stops_the_study_until_it_is_taken_off(registry, tracker):
    assert registry(*TRAIN, "--study", "tiny").exit_code == 0
    (run,) = tracker.search({schema.TAG_KIND: "run"})
    tracker.log(run.run_id, tags={schema.TAG_STOP: "yes"})
    for command in (STUDY, ("worker", "tiny", "--device", "cpu")):
        result = registry(*command)
        assert result.exit_code == 130
        assert run.run_id in result.output and "fa.stop=yes" in result.output
    tracker.remove_tags(run.run_id, [schema.TAG_STOP])
    assert registry(*STUDY).exit_code == 0


def test_it_stops_runs_at_work_after_their_epoch_and_they_go_on_from_there(registry, tracker, monkeypatch):
    monkeypatch.setattr(coordination, "STOP_INTERVAL", 0)
    looked = threading.Event()
    asked = coordination.stopped_by_tag

    def stopped(tracker, study):
        text = asked(tracker, study) or ("stopped" if looked.is_set() else "")
        looked.set()  # the second look, between two epochs of the first run, finds the tag
        return text

    monkeypatch.setattr(coordination, "stopped_by_tag", stopped)
    result = registry(*STUDY)
    assert result.exit_code == 130, result.output
    assert "RUNNING" not in {run.state for run in tracker.search({})}
    monkeypatch.setattr(coordination, "stopped_by_tag", asked)
    assert registry(*STUDY).exit_code == 0


@pytest.mark.parametrize("lease", ["9", "86401", "soon"])
def test_a_lease_that_is_none_is_named_before_anything_is_written(registry, tracker, lease):
    for command in (STUDY, TRAIN, ("worker", "tiny")):
        result = registry(*command, "--heartbeat-timeout", lease)
        assert fields(result) == ["lease (--heartbeat-timeout)"]
    assert not tracker.search({})


def elsewhere_row(result) -> str:
    """What doctor reports about runs on other machines; empty where it reports nothing."""
    rows = {row["check"]: row["found"] for row in json.loads(result.stdout)}
    return rows.get("runs on other machines", "")


def test_doctor_closes_what_a_lost_machine_left_and_nothing_that_lives(registry, tracker, monkeypatch):
    (lost, _), (alive, _) = held(tracker), held(tracker)
    looks = []
    monkeypatch.setattr(coordination, "HeartbeatMonitor", partial(HeartbeatMonitor, clock=lambda: 4.0 * len(looks)))

    def one_lives():
        looks.append(1)
        tracker.log(alive, tags=heartbeat_tag(len(looks), 10))

    meanwhile(monkeypatch, one_lives)
    assert elsewhere_row(registry("doctor", "--json")).startswith("2 running on another-machine")
    assert tracker.get(lost).state == "RUNNING"  # to look changes nothing
    assert elsewhere_row(registry("doctor", "--repair", "--json")) == "1 running on another-machine"
    assert (tracker.get(lost).state, tracker.get(alive).state) == ("KILLED", "RUNNING")


def test_one_worker_of_many_asks_once_for_all_that_others_have_trained(registry, tracker, monkeypatch):
    """A search a specification and worker would be the most that a server of many workers is asked."""
    assert registry(*STUDY).exit_code == 0
    specs, asked, genuine = (RunSelector("tiny", overrides={"device": "cpu"}).as_asked.specs, [], MlflowTracker.search)

    def search(self, tags, *arguments, **named):
        asked.append(tags)
        return genuine(self, tags, *arguments, **named)

    monkeypatch.setattr(coordination, "MISSES", 2)
    monkeypatch.setattr(MlflowTracker, "search", search)
    for spec in [*specs, specs[-1]]:  # and who comes back for one asks the store, which may have lost it
        job = TrainingJob(spec, tracker.uri, study="tiny")
        ended = run_to_completion(training_job.training_steps(job, lambda: False, lambda summary: None))
        assert ended.status == training_job.ELSEWHERE
    one, all_of_study = [schema.TAG_SPEC], [schema.TAG_KIND, schema.TAG_STUDY]
    assert [list(tags) for tags in asked] == [one, one, all_of_study, one]


def test_what_was_only_held_when_it_was_looked_at_is_asked_for_again(registry, tracker, monkeypatch):
    """Its process may have died since."""
    run_id, identity = held(tracker)
    tracker.log(run_id, tags={schema.TAG_STUDY: "tiny", schema.TAG_KIND: "run"})
    overview = coordination.StudySnapshot(tracker, "tiny")
    for _ in range(coordination.MISSES):
        overview.record_outcome(free=False)
    (seen,) = overview.attempts(identity)
    (spec, *_) = RunSelector("tiny", overrides={"device": "cpu"}).as_asked.specs
    assert seen.run_id == run_id and newest_finished([seen], spec) is None
    assert overview.attempts(identity) == []


def test_a_server_that_does_not_answer_stops_no_study(tracker, monkeypatch):
    def away(self, *given, **named):
        raise StoreRefusal("store http://away", requests.exceptions.ConnectionError("refused"))

    monkeypatch.setattr(coordination.StopTagPoller, "looked", {})
    stop = coordination.StopTagPoller(tracker, "tiny", lambda: False)
    monkeypatch.setattr(MlflowTracker, "search", away)
    assert not stop()


@pytest.mark.parametrize("process", [FAR, f"{platform.node()}:1:1:another-container"])
def test_doctor_closes_what_a_gone_container_left_of_every_kind(registry, tracker, monkeypatch, process):
    """Also that of a container with this machine's own name, whose processes cannot be seen from here."""
    tags = {schema.TAG_STATUS: "running", schema.TAG_PROCESS: process, **heartbeat_tag(0, 10)}
    left = [tracker.create("left", {schema.TAG_KIND: kind, **tags}, {}) for kind in ("run", "study", "audit")]
    looks = []
    monkeypatch.setattr(coordination, "HeartbeatMonitor", partial(HeartbeatMonitor, clock=lambda: 4.0 * len(looks)))
    meanwhile(monkeypatch, lambda: looks.append(1))
    assert elsewhere_row(registry("doctor", "--json")).startswith(f"3 running on {process.partition(':')[0]}")
    assert elsewhere_row(registry("doctor", "--repair", "--json")) == ""
    for run_id in left:
        assert tracker.get(run_id).state == "KILLED" and tracker.get(run_id).tags[schema.TAG_STATUS] == "failed"


@pytest.mark.parametrize("sign_of_life", ["", "alive"])
def test_a_run_without_a_heartbeat_is_listed_and_closed_only_where_a_person_says_that_its_machine_is_gone(
    registry, tracker, sign_of_life
):
    # a heartbeat without a duration would be waited for without an end
    tags = {schema.TAG_KIND: "audit", schema.TAG_STATUS: "running", schema.TAG_HEARTBEAT: sign_of_life}
    lost = tracker.create("lost", {**tags, schema.TAG_PROCESS: "old box:1:1:1"}, {})
    other = tracker.create("other", {**tags, schema.TAG_PROCESS: FAR}, {})

    def row(*options):
        printed = json.loads(registry("doctor", "--json", *options).stdout)
        return next(row for row in printed if row["check"] == "runs at work on old box")

    for options in ((), ("--repair",)):
        assert row(*options)["state"] == "unknown" and f"audit {lost}" in row(*options)["found"]
        assert "--gone 'old box'" in row(*options)["found"]
        assert tracker.get(lost).state == "RUNNING"
    assert row("--repair", "--gone", "old box")["state"] == "repaired"
    assert (tracker.get(lost).state, tracker.get(other).state) == ("KILLED", "RUNNING")
    for wrong in (("--repair", "--gone", "another-machin"), ("--gone", "another-machine")):
        assert registry("doctor", *wrong).exit_code == 2
    assert tracker.get(other).state == "RUNNING"


def test_doctor_waits_for_the_runs_that_it_found_and_not_for_those_that_start_meanwhile(registry, tracker, monkeypatch):
    """A machine that trains one short run after another never shows a second heartbeat of a run."""
    lost, _ = held(tracker)
    started, seconds = [held(tracker)[0]], [0.0]

    def another_starts(pause):
        seconds[0] += 4.0
        assert seconds[0] < 100
        tracker.finish(started[-1], "FINISHED")
        started.append(held(tracker)[0])

    monkeypatch.setattr(coordination, "time", SimpleNamespace(sleep=another_starts, monotonic=lambda: seconds[0]))
    monkeypatch.setattr(coordination, "HeartbeatMonitor", partial(HeartbeatMonitor, clock=lambda: seconds[0]))
    shown = registry("doctor", "--repair", "--json")
    assert tracker.get(lost).state == "KILLED" and tracker.get(started[-1]).state == "RUNNING"
    assert lost in shown.stderr and seconds[0] <= 10 + GAP


def test_a_run_whose_clock_was_set_back_is_noted_by_doctor(registry, tracker):
    run_id = tracker.create("back", {schema.TAG_KIND: "run", schema.TAG_STATUS: "complete"}, {})
    tracker.finish(run_id, "FINISHED")

    def clocks():
        return next(row for row in json.loads(registry("doctor", "--json").stdout) if row["check"] == "clocks")

    assert clocks()["state"] == "ok"
    with closing(sqlite3.connect(tracker.uri.removeprefix("sqlite:///"))) as database, database:
        database.execute("UPDATE runs SET end_time = start_time - 5000 WHERE run_uuid = ?", (run_id,))
    assert (clocks()["state"], clocks()["ok"]) == ("noted", True) and run_id in clocks()["found"]


def test_while_it_waits_its_turn_a_run_is_not_closed_by_its_own_look(tracker, monkeypatch):
    """It sends no heartbeat then: after the lease time it would pass for an abandoned run."""
    closed = []
    monkeypatch.setattr(
        training_job, "close_abandoned", lambda tracker, runs, signs: closed.extend(run.run_id for run in runs)
    )
    other, identity = held(tracker)
    (mine, _), looks = held(tracker), training_job._Attempts(tracker, identity)
    looks.mine = mine
    assert {run.run_id for run in looks.refresh()} == {mine, other} and closed == [other]
