"""An epoch end to end is one of a real, tracked run; what was aimed at is said met or missed."""

from __future__ import annotations

import pytest

from benchmarks import end_to_end
from benchmarks.end_to_end import COMPARED, JOBS, ONE, PUBLISHED, RUNS, EndToEnd, end_to_end_lines
from benchmarks.timing import Spread
from fa_registry.commands.training import TrainingJob
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.specs import parse_spec

SECONDS = dict.fromkeys(RUNS, 1.0)


def test_what_is_timed_is_a_run_of_a_study_measured_and_tracked(workplace):
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
    end_to_end._begin(TrainingJob(spec, store))
    for _ in range(3):
        end_to_end._epoch()
    end_to_end._end()
    tracker = MlflowTracker(store)
    (run,) = tracker.search({schema.TAG_KIND: "run"})
    history = tracker._client.get_metric_history(run.run_id, "accuracy/test")
    assert [point.step for point in history] == [0, 1, 2]  # the third epoch is trained and not measured yet


def test_two_processes_train_two_runs_and_are_compared_by_the_run():
    assert RUNS[JOBS] == 2 and RUNS[ONE] == RUNS[PUBLISHED] == 1
    assert [aim for *_, aim in COMPARED.values()] == [6.0, None, 1.8, None]


@pytest.mark.parametrize(("median", "words"), [(6.5, "met"), (5.5, "MISSED")])
def test_every_aim_is_said_met_or_missed(median, words):
    ratio = {name: Spread(median, 1.0, 9.0) for name in COMPARED}
    lines = end_to_end_lines(EndToEnd(SECONDS, ratio))
    assert [line.rpartition(": ")[2] for line in lines if "target" in line] == [words, "met"]
    assert sum("end to end, published" in line for line in lines) == 2
