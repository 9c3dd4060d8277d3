"""The state to resume from in the store: two places in turns, the furthest wins, and training never depends on it."""

from __future__ import annotations

import itertools

import pytest

from fa_registry.errors import StoreError
from fa_registry.tracking import resume_upload, schema
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.resume_upload import KeptState


@pytest.fixture
def tracker(tmp_path):
    return MemoryTracker(tmp_path / "runs")


@pytest.fixture
def state(tmp_path):
    """A resume file as training writes one; only its name and its bytes matter here."""
    path = tmp_path / "abc-1.resume"
    path.write_bytes(b"first")
    return path


def begun(tracker) -> str:
    return tracker.create("a run", {schema.TAG_PROCESS: "far:1:1:1"}, {})


def left_at(tracker, path, epoch: int, text: bytes) -> None:
    """A run whose process kept this state and is gone."""
    path.write_bytes(text)
    KeptState(tracker, begun(tracker)).offer(path, epoch, now=True)


def test_the_state_before_is_whole_while_the_next_one_is_written(tracker, state, monkeypatch):
    run_id = begun(tracker)
    kept = KeptState(tracker, run_id)
    for epoch, text in ((1, b"first"), (2, b"second"), (3, b"third")):
        state.write_bytes(text)
        before, upload = tracker.get(run_id).tags.get(schema.TAG_STATE), tracker.upload

        def halfway(run_id, folder, upload=upload, before=before):
            upload(run_id, folder)
            if before:  # what the tag names is still there as it was
                _, place, name = before.split()
                held = tracker.artifact(run_id, f"resume/{place}/{name}.resume").read_bytes()
                assert held == {"1": b"first", "2": b"second"}[before[0]]

        monkeypatch.setattr(tracker, "upload", halfway)
        kept.offer(state, epoch, now=True)
        monkeypatch.undo()
    assert tracker.get(run_id).tags[schema.TAG_STATE] == "3 0 abc-1"


def test_the_furthest_is_fetched_if_it_is_beyond_what_is_here(tracker, state):
    for epoch in (4, 9, 7):
        left_at(tracker, state, epoch, f"of {epoch}".encode())
    state.write_bytes(b"own")
    kept = KeptState(tracker, begun(tracker), tracker.search({}))
    kept.fetch(state, beyond=9)
    assert state.read_bytes() == b"own"
    kept.fetch(state.with_name("other.resume"), beyond=-1)
    assert not state.with_name("other.resume").exists()
    kept.fetch(state, beyond=8)
    assert state.read_bytes() == b"of 9"


@pytest.mark.parametrize(
    "text", ["", "x", "9", "9 0", "9 2 abc-1", "9 0 ../abc-1", "-9 0 abc-1", "99999999999 0 abc-1"]
)
def test_a_tag_that_is_none_is_no_state(tracker, state, text):
    run_id = tracker.create("a run", {schema.TAG_STATE: text}, {})
    KeptState(tracker, begun(tracker), [tracker.get(run_id)]).fetch(state, beyond=-1)
    assert state.read_bytes() == b"first"


def test_it_goes_there_once_a_minute_or_a_hundred_times_as_seldom_as_it_takes(tracker, state, monkeypatch):
    now, cost, sent = [0.0], [0.1], []

    def upload(run_id, folder):
        sent.append(now[0])
        now[0] += cost[0]

    monkeypatch.setattr(tracker, "upload", upload)
    kept = KeptState(tracker, begun(tracker), clock=lambda: now[0])
    for second in itertools.count(step=10):
        now[0] = max(now[0], float(second))
        cost[0] = 2.0 if len(sent) > 1 else 0.1
        kept.offer(state, 1)
        if second > 400:
            break
    assert [round(when) for when in sent] == [60, 130, 200, 410]  # the third took 2 s: that is worth 200 s of training


def test_a_store_that_does_not_take_it_costs_the_training_nothing(tracker, state, monkeypatch, caplog):
    def refuses(run_id, folder):
        raise StoreError("no room")

    monkeypatch.setattr(tracker, "upload", refuses)
    KeptState(tracker, begun(tracker)).offer(state, 1, now=True)
    assert ": no room" in caplog.text


def test_what_is_no_regular_file_is_not_gone_on_from(tracker, state, tmp_path, caplog):
    left_at(tracker, state, 3, b"good")
    (run,) = tracker.search({})
    held = tracker.artifact(run.run_id, "resume/0/abc-1.resume")
    held.unlink()
    held.symlink_to(tmp_path / "abc-1.resume")
    state.write_bytes(b"own")
    KeptState(tracker, begun(tracker), [run]).fetch(state, beyond=-1)
    assert state.read_bytes() == b"own" and "is a link" in caplog.text


def test_of_an_sqlite_store_nothing_is_sent(tracker, state, monkeypatch):
    monkeypatch.setattr(resume_upload, "sqlite_path", lambda uri: state)
    run_id = begun(tracker)
    KeptState(tracker, run_id).offer(state, 1, now=True)
    assert schema.TAG_STATE not in tracker.get(run_id).tags
