"""Jobs placed in processes of a cluster, with processes that a test makes up: what is reported about each, in every outcome."""

from __future__ import annotations

import logging
import pickle
import platform
import queue

import pytest

from fa_registry.errors import UsageError
from fa_registry.studies import scheduler
from fa_registry.studies.executors.base import ENDS, JobResources
from fa_registry.studies.scheduler import BEGINS, Process, ProcessLost, Scheduler, do_batch
from tests.studies.jobs import asked_to_end_once, three_steps


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(scheduler, "POLL_SECONDS", 0)


class InThisThread(Process):
    """A process that does its batch at once. fates: of those placed, in order: Lost at once, or once it BEGINS; None does it."""

    def __init__(self, fates, record):
        self.fates, self.record = fates, record
        self.messages = queue.SimpleQueue()

    def __call__(self, message):
        placed = InThisThread(self.fates, self.record)
        placed.fate = self.fates.pop(0) if self.fates else None
        _, _, indices, _ = pickle.loads(message)
        self.record.append(indices)
        if placed.fate is None:
            do_batch(message, lambda: False, placed.messages.put)
        return placed

    def reported(self):
        if isinstance(self.fate, ProcessLost):
            raise self.fate
        if self.fate == BEGINS:
            self.fate = ProcessLost("was lost")
            return [BEGINS]
        return [self.messages.get() for _ in range(self.messages.qsize())]

    def ask_to_stop(self):
        self.record.append("asked")

    def end(self, seconds=0.0):
        self.record.append("ended")


def placed(jobs, *fates, work=three_steps, stop=lambda: False, **resources):
    """What was reported, and what was done with processes, each by the indices of its jobs."""
    events, record = [], []
    started = InThisThread(list(fates), record)
    Scheduler(jobs, work, JobResources(**resources), stop, events.append, started).run()
    return events, record


def ends(events):
    return {event.index: (event.kind, event.value) for event in events if event.kind in ENDS}


def test_every_job_ends_once_under_its_own_index():
    events, record = placed(["a", "breaks", "c"], at_once=2)
    assert ends(events)[0] == ("done", "a done") and ends(events)[2] == ("done", "c done")
    assert ends(events)[1][0] == "failed" and "this one breaks" in ends(events)[1][1]
    assert sorted(event.index for event in events if event.kind == "progress") == [0, 0, 0, 2, 2, 2]
    assert record == [[0], [1], "ended", "ended", [2], "ended"]


def test_cards_are_shared_alike_and_a_process_takes_those_of_one_card():
    def sizes(jobs, **resources):
        return [len(entry) for entry in placed(list("abcdefghij")[:jobs], **resources)[1] if isinstance(entry, list)]

    assert sizes(10, at_once=8, gpus=0.25) == [4, 4, 1, 1]
    assert sizes(4, at_once=16, gpus=0.25) == [1, 1, 1, 1]
    assert sizes(4, at_once=2, gpus=0.25) == [2, 2]
    assert sizes(8, at_once=8, device="cuda") == [8]


def test_a_lost_process_costs_its_jobs_one_attempt():
    events, record = placed(["a", "b"], BEGINS, ProcessLost("was lost"), at_once=1)
    assert ends(events) == {0: ("done", "a done"), 1: ("done", "b done")}
    assert [(event.index, "was lost" in event.value) for event in events if event.kind == "again"] == [(0, True)]
    assert record == [[0], "ended", [0], "ended", [0], "ended", [1], "ended"]


def test_a_job_whose_process_is_lost_twice_has_failed_and_the_others_go_on():
    events, _ = placed(["a", "b"], BEGINS, BEGINS, at_once=1)
    assert [kind for kind, _ in ends(events).values()] == ["failed", "done"]
    assert [event.lost for event in events if event.kind == "failed"] == [True]


def test_jobs_of_a_lost_process_begin_again_alone_so_that_the_one_that_ends_it_fails_alone():
    events, record = placed(["a", "b", "c"], BEGINS, None, BEGINS, at_once=4, gpus=0.25)
    assert [entry for entry in record if entry != "ended"] == [[0, 1, 2], [0], [1], [2]]
    assert {index: kind for index, (kind, _) in ends(events).items()} == {0: "done", 1: "failed", 2: "done"}


def test_a_process_that_never_was_costs_no_attempt_but_is_not_looked_for_for_ever():
    """A machine that has just died is chosen again until its cluster knows."""
    events, _ = placed(["a"], *[ProcessLost("was lost")] * 9)
    assert [event.kind for event in events if event.kind != "progress"] == ["done"]
    events, _ = placed(["a"], *[ProcessLost("was lost")] * 11)
    assert [event.kind for event in events] == ["again", "failed"]


def test_what_the_machine_stops_begins_again_elsewhere(tmp_path):
    events, _ = placed([str(tmp_path)], work=asked_to_end_once)
    assert ends(events) == {0: ("done", "done")}
    (again,) = [event for event in events if event.kind == "again"]
    assert "(stopped after epoch 3)" in again.value


def test_a_stop_drops_what_waits_for_room_too():
    asked = iter([False, True, True])
    events, record = placed(["a", "b"], "waits", "waits", at_once=1, stop=lambda: next(asked))
    assert ends(events) == {0: ("stopped", None), 1: ("stopped", None)}
    assert record == [[0], "ended"]


def test_who_is_silent_for_too_long_is_ended(monkeypatch):
    clock = iter(range(0, 10**6, 30))
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: next(clock))

    class Begun(InThisThread):
        def __call__(self, message):
            placed = super().__call__(message)
            placed.messages.put(BEGINS)
            return placed

    events, record = [], []
    begun = Begun(["hangs"], record)
    Scheduler(["a"], three_steps, JobResources(silence=60), lambda: False, events.append, begun).run()
    ((kind, why),) = ends(events).values()
    assert kind == "failed" and "sent no heartbeat for" in why and events[-1].lost and record[-1] == "ended"


def test_a_job_that_waits_for_a_slot_is_reported_and_never_silent(monkeypatch, caplog):
    clock = iter(range(0, 10**6, 40))
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: next(clock))
    asked = iter([False] * 5 + [True] * 5)
    with caplog.at_level(logging.INFO, "fa_registry"):
        events, _ = placed(["a"], "waits", silence=1, stop=lambda: next(asked))
    assert ends(events) == {0: ("stopped", None)}
    assert any("1 of 1 processes" in message for message in caplog.messages)


def test_unequal_versions_end_it_all_before_a_job_begins(monkeypatch):
    there = iter([{**scheduler.versions(), "torch": "1.0"}, scheduler.versions()])
    monkeypatch.setattr(scheduler, "versions", lambda: next(there))
    with pytest.raises(UsageError) as refused:
        placed(["a"])
    assert refused.value.exit_code == 2
    assert str(refused.value).startswith(f"{platform.node()} has torch ")
    assert "instead of 1.0;" in str(refused.value)


def test_what_cannot_be_read_or_sent_fails_its_job_alone():
    events, _ = placed(["a", lambda: None, "c"], at_once=1)
    assert [kind for _, (kind, _) in sorted(ends(events).items())] == ["done", "failed", "done"]
    assert "pickle" in ends(events)[1][1].lower()
