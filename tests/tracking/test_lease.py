"""Who trains a specification: one of many, in every order of their steps, regardless of the clocks."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_registry import process_ownership
from fa_registry.tracking import lease, run_state, schema
from fa_registry.tracking.lease import (
    CHOOSING,
    HELD,
    HeartbeatMonitor,
    LeaseHolder,
    LeaseLost,
    acquire,
    initial_tags,
    lease_owner,
)
from fa_registry.tracking.memory import MemoryTracker

pytestmark = pytest.mark.long

SPEC = {schema.TAG_SPEC: "s"}
ELSEWHERE = {schema.TAG_PROCESS: "another-machine:1:1:1"}


class Clock:
    """Seconds that pass when a test advances them."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def begun(tracker, **tags):
    return tracker.create("attempt", {**SPEC, **initial_tags(60), **ELSEWHERE, **tags}, {})


def steps(tracker, run_id, outcome):
    """One attempt as `take` makes it, stopped before each of its questions and answers: a generator."""

    def attempts():
        return tracker.search(SPEC)

    waiting, going, ended = threading.Event(), threading.Event(), threading.Event()

    def pause():
        waiting.set()
        going.wait()
        going.clear()

    class Stepping:
        def log(self, *arguments, **named):
            pause()
            tracker.log(*arguments, **named)

    def looking():
        pause()
        return attempts()

    def run():
        outcome[run_id] = acquire(Stepping(), run_id, looking)
        ended.set()
        waiting.set()

    threading.Thread(target=run, daemon=True).start()
    while True:
        waiting.wait()
        waiting.clear()
        if ended.is_set():
            return
        yield
        going.set()


@given(st.data())
def test_in_every_order_of_their_steps_exactly_one_holds_it(tmp_path_factory, data):
    """Three attempts; Hypothesis draws who takes the next step, when each is begun, and whose id is the smaller."""
    tracker, outcome, at_work, begun_now = MemoryTracker(tmp_path_factory.getbasetemp() / "runs"), {}, {}, 0
    ids = data.draw(st.permutations(["a", "b", "c"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "INTERVAL", 0)
        while at_work or begun_now < 3:
            choices = [*at_work, *(["another"] if begun_now < 3 else [])]
            chosen = data.draw(st.sampled_from(choices))
            if chosen == "another":
                made, run_id = begun(tracker), ids[begun_now]
                tracker.runs[run_id] = dataclasses.replace(tracker.runs.pop(made), run_id=run_id)
                begun_now += 1
                at_work[run_id] = steps(tracker, run_id, outcome)
                chosen = run_id
            if next(at_work[chosen], "ended") == "ended":
                del at_work[chosen]
                if outcome[chosen] is not None:
                    tracker.finish(chosen, "KILLED")
                    tracker.discard(chosen)
    assert len(outcome) == 3
    winners = [run_id for run_id, rival in outcome.items() if rival is None]
    assert len(winners) == 1
    assert all(rival is None or rival.run_id in outcome for rival in outcome.values())


def test_a_later_worker_gives_way_at_once_although_its_id_is_smaller(tmp_path):
    tracker = MemoryTracker(tmp_path)
    small, large = begun(tracker), begun(tracker)
    attempts = lambda: tracker.search(SPEC)  # noqa: E731
    tracker.finish(small, "KILLED")
    assert acquire(tracker, large, attempts) is None
    tracker.runs[small] = dataclasses.replace(tracker.runs[small], state="RUNNING")
    assert acquire(tracker, small, attempts).run_id == large


def test_an_attempt_is_needless_where_another_has_finished_between_two_looks(tmp_path):
    tracker = MemoryTracker(tmp_path)
    first, second = begun(tracker), begun(tracker)
    looks = itertools.count()

    def attempts():
        if next(looks) == 1:  # the other had held it, and ended in the meantime
            tracker.log(first, tags={schema.TAG_STATUS: "complete"})
            tracker.finish(first, "FINISHED")
        return tracker.search(SPEC)

    def finished(runs):
        return next((run for run in runs if run.tags.get(schema.TAG_STATUS) == "complete"), None)

    assert acquire(tracker, second, attempts, finished).run_id == first


def test_a_worker_without_competitors_asks_once_and_records_its_lease_with_what_the_run_is_of(tmp_path):
    """Two requests a run: a study on a server has as many runs as its workers can train."""
    tracker, looks = MemoryTracker(tmp_path), []
    mine = begun(tracker)
    assert acquire(tracker, mine, lambda: looks.append(1) or tracker.search(SPEC), params={"cfg/seed": "1"}) is None
    assert len(looks) == 1 and tracker.get(mine).tags[schema.TAG_LEASE] == HELD
    assert tracker.get(mine).params == {"cfg/seed": "1"}


@pytest.mark.parametrize("state", [lease.ASKS, HELD])
def test_a_worker_gives_way_to_one_that_asks_or_holds_already_and_what_it_is_of_is_not_written(tmp_path, state):
    tracker = MemoryTracker(tmp_path)
    mine, other = begun(tracker), begun(tracker, **{schema.TAG_LEASE: state})
    assert acquire(tracker, mine, lambda: tracker.search(SPEC), params={"cfg/seed": "1"}).run_id == other
    assert tracker.get(mine).tags[schema.TAG_LEASE] == CHOOSING and not tracker.get(mine).params


def test_who_saw_another_choosing_gives_way_to_it_although_its_own_id_is_smaller(tmp_path, monkeypatch):
    """The other saw no competitor and has begun to train: it was made first, looked, and records its lease while this one waits."""
    tracker = MemoryTracker(tmp_path)
    mine, other = begun(tracker), begun(tracker)
    monkeypatch.setattr(lease.time, "sleep", lambda seconds: lease.set_lease_state(tracker, other, {}))
    assert acquire(tracker, mine, lambda: tracker.search(SPEC)).run_id == other
    assert tracker.get(mine).tags[schema.TAG_LEASE] == lease.ASKS


def test_a_held_run_of_another_machine_is_dead_only_after_a_lease_without_a_sign_by_our_own_clock(tmp_path):
    tracker, clock = MemoryTracker(tmp_path), Clock()
    run_id = begun(tracker, **{schema.TAG_LEASE: HELD})
    signs = HeartbeatMonitor(clock)

    def look(seconds):
        """The last of looks a second apart."""
        for _ in range(seconds):
            clock.now += 1
            found = lease_owner(tracker.search(SPEC), signs)
        return found

    assert look(1) and look(59)
    tracker.log(run_id, tags=lease.heartbeat_tag(1, 60))  # regardless of its own clock
    assert look(61) and signs.has_moved(tracker.get(run_id))
    assert look(1) is None


def test_a_store_that_was_away_for_an_hour_makes_no_worker_dead(tmp_path):
    tracker, clock = MemoryTracker(tmp_path), Clock()
    begun(tracker, **{schema.TAG_LEASE: HELD})
    signs = HeartbeatMonitor(clock)
    for clock.now in (0, 3600):
        assert lease_owner(tracker.search(SPEC), signs)


def test_one_of_this_machine_that_is_gone_is_dead_at_once(tmp_path):
    tracker = MemoryTracker(tmp_path)
    host, _, start, namespace = process_ownership.process_tag().split(":")
    gone = {schema.TAG_PROCESS: f"{host}:4194304:{start}:{namespace}", schema.TAG_LEASE: HELD}
    begun(tracker, **gone)
    mine = begun(tracker)
    assert acquire(tracker, mine, lambda: tracker.search(SPEC)) is None


def test_one_that_died_while_it_chose_holds_no_other_up(tmp_path, monkeypatch):
    tracker, clock = MemoryTracker(tmp_path), Clock()
    begun(tracker, **{schema.TAG_LEASE: CHOOSING})
    mine = begun(tracker)
    monkeypatch.setattr(lease.time, "sleep", lambda seconds: setattr(clock, "now", clock.now + 7))
    assert acquire(tracker, mine, lambda: tracker.search(SPEC), monitor=HeartbeatMonitor(clock)) is None
    assert clock.now > 60


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("7 of 999999 s", 86_400), ("7 of 0 s", 10), ("x", None)])
def test_an_untrusted_run_cannot_hold_a_specification_forever_nor_lose_it_at_once(tmp_path, text, seconds):
    """Without a sign as a run writes it the process decides alone."""
    tracker, clock = MemoryTracker(tmp_path), Clock()
    begun(tracker, **{schema.TAG_LEASE: HELD, schema.TAG_HEARTBEAT: text})
    (run,) = tracker.search(SPEC)
    signs = HeartbeatMonitor(clock)
    assert not signs.is_dead(run)
    for _ in range(10 if seconds == 10 else 5761):  # as many looks, as far apart as counts, as the longest lease has
        assert not signs.is_dead(run)
        clock.now += 1 if seconds == 10 else run_state.GAP
    clock.now += 1
    assert signs.is_dead(run) is (seconds is not None)


def test_a_claim_gives_signs_in_an_epoch_that_is_longer_than_its_lease(tmp_path):
    tracker = MemoryTracker(tmp_path)
    run_id = begun(tracker)
    before, given = tracker.get(run_id).tags[schema.TAG_HEARTBEAT], threading.Event()
    logged = tracker.log

    def log(*arguments, **named):
        logged(*arguments, **named)
        given.set()

    tracker.log = log
    with LeaseHolder(tracker, run_id, 1):
        assert given.wait(120)
    assert tracker.get(run_id).tags[schema.TAG_HEARTBEAT] != before


def test_a_process_that_slept_longer_than_its_lease_looks_whether_it_was_taken_over(tmp_path):
    tracker, clock = MemoryTracker(tmp_path), Clock()
    run_id = begun(tracker, **{schema.TAG_LEASE: HELD})
    held = LeaseHolder(tracker, run_id, 60, clock)
    clock.now = 59
    held.mark_heartbeat_sent()
    tracker.finish(run_id, "KILLED")
    held.check_if_late()  # in time: it need not ask
    clock.now = 120
    held.mark_heartbeat_sent()
    with pytest.raises(LeaseLost, match="sent no heartbeat for more than 60 seconds"):
        held.check_if_late()


def test_a_store_that_does_not_answer_ends_no_signs(tmp_path):
    """The thread continues; the next heartbeat is soon."""
    tracker = MemoryTracker(tmp_path)
    run_id, asked, answered = begun(tracker), itertools.count(), threading.Event()

    def log(*arguments, **named):
        if next(asked) == 0:
            raise lease.RegistryError("away")
        answered.set()

    tracker.log = log
    with LeaseHolder(tracker, run_id, 1):
        assert answered.wait(120)
