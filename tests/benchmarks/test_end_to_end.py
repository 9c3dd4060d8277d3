"""An epoch end to end is one of a real, tracked run; what was aimed at is said met or missed."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import end_to_end
from benchmarks.end_to_end import (
    COMPARED,
    CORES,
    EDITION,
    JOBS,
    ONE,
    PUBLISHED,
    THREADED,
    EndToEnd,
    end_to_end_lines,
    study_job,
)
from benchmarks.timing import Spread
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.specs import parse_spec
from fa_registry.workflows.watching import checked_watch

ALONE, THREADS = PUBLISHED[1], PUBLISHED[CORES]
CLOCK = {ALONE: [24.0] * 3, THREADS: [36.0] * 3, JOBS: [8.0] * 3, ONE: [6.0] * 3, THREADED: [5.0] * 3}
AS_STARTED, THROUGHPUT = list(COMPARED)[:2]


def test_what_is_timed_is_a_run_of_a_study_measured_watched_and_tracked(workplace):
    store = f"sqlite:///{workplace / 'mlflow.db'}"
    small = {"d_hidden": 16, "num_blocks": 2}
    spec = parse_spec(
        {
            "method": "dfa",
            "architecture": "resmlp",
            "dataset": "digits",
            "seed": 0,
            "epochs": 9,
            "architecture_options": small,
        }
    )
    end_to_end._begin(study_job(spec, store))
    for _ in range(3):
        end_to_end._epoch()
    end_to_end._end()
    tracker = MlflowTracker(store)
    (run,) = tracker.search({schema.TAG_KIND: "run"})
    history = tracker._client.get_metric_history(run.run_id, "accuracy/test")
    assert [point.step for point in history] == [0, 1, 2]  # the third epoch is trained and not measured yet
    assert run.tags[schema.TAG_FIRST_FIRE_BY] == checked_watch(EDITION, "", []).by


def test_two_runs_side_by_side_are_counted_by_the_run_and_the_published_time_stands_above():
    found = EndToEnd.timed(CLOCK)
    assert found.seconds == {ALONE: 24.0, THREADS: 36.0, JOBS: 8.0 / CORES, ONE: 6.0, THREADED: 5.0}
    assert [round(one.median, 2) for one in found.ratio.values()] == [9.0, 6.0, 4.8, 4.0, 1.5, 1.2]


def test_the_faster_of_the_published_is_what_ours_is_compared_with():
    found = EndToEnd.timed({**CLOCK, THREADS: [10.0, 12.0, 14.0]})
    assert found.ratio[THROUGHPUT] == Spread(3.0, 2.5, 3.5)
    slow = EndToEnd.timed({**CLOCK, ALONE: [10.0] * 3})
    assert (slow.ratio[THROUGHPUT].median, slow.ratio[AS_STARTED].median) == (2.5, 9.0)
    assert found.seconds[ALONE] == 24.0 and found.seconds[THREADS] == 12.0  # both are printed


def test_what_is_compared_no_longer_is_left_out_of_a_record():
    kept = dataclasses.asdict(EndToEnd.timed(CLOCK))
    kept["ratio"]["of old"] = kept["ratio"][THROUGHPUT]
    assert EndToEnd.of(kept) == EndToEnd.timed(CLOCK)


@pytest.mark.parametrize(("published", "words"), [(24.0, "met"), (23.0, "MISSED")])
def test_every_aim_is_said_met_or_missed(published, words):
    lines = end_to_end_lines(EndToEnd.timed({**CLOCK, ALONE: [published] * 3}))
    said = [line.rpartition(": ")[2] for line in lines if "target" in line]
    assert said == [
        "met",
        words,
        "MISSED",
        "MISSED",
        "MISSED",
    ]  # throughput, one run on two threads and on one, a second process
    assert all(name in "\n".join(lines) for name in CLOCK)
