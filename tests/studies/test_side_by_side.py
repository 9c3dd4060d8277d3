"""Side by side: turns, results, failures, stops; and a run trained beside others is the run trained alone."""

from __future__ import annotations

import pytest

from fa_registry.errors import Interrupted
from fa_registry.studies.executors.side_by_side import run_side_by_side
from fa_registry.training.loop import in_one_go, training
from fa_registry.training.trainer import Trainer
from tests.helpers.small import Recorder, tiny_task, weights_equal


def collect(jobs, steps, count, stop=lambda: False):
    events = []
    run_side_by_side(jobs, steps, count, stop, events.append)
    return events


def count_to(job, stop, report):
    for turn in range(job):
        if job == 3:
            raise ValueError("three is not allowed")
        if stop():
            raise Interrupted("stopped as asked")
        report(turn)
        yield
    return job * job


def test_every_job_ends_once_and_a_failure_stops_no_other():
    ends = {event.index: event for event in collect([1, 2, 3, 4], count_to, 2) if event.kind != "progress"}
    assert [ends[index].kind for index in range(4)] == ["done", "done", "failed", "done"]
    assert [ends[index].value for index in (0, 1, 3)] == [1, 4, 16]
    assert "three is not allowed" in ends[2].value


def test_so_many_take_turns_and_the_next_begins_when_one_has_ended():
    turns = [event.index for event in collect([2, 2, 1], count_to, 2) if event.kind == "progress"]
    assert turns == [0, 1, 0, 1, 2]


def test_a_stop_ends_those_at_work_and_drops_the_others():
    heard = []
    run_side_by_side([5, 5, 5], count_to, 2, lambda: len(heard) > 3, heard.append)
    assert [event.kind for event in heard if event.kind != "progress"] == ["stopped"] * 3


def test_an_interrupt_closes_whoever_is_at_work():
    closed = []

    def steps(job, stop, report):
        try:
            yield
            raise KeyboardInterrupt
        except GeneratorExit:
            closed.append(job)
            raise

    with pytest.raises(KeyboardInterrupt):
        collect(["first", "second"], steps, 2)
    assert closed == ["second"]


def test_replicas_are_bit_equal_to_runs_trained_alone():
    changes = [{"seed": 1}, {"seed": 2, "penalty": 0.01}, {"method": "weight_mirror"}]

    def steps(trainer, stop, report):
        return training(trainer, Recorder(), stop)

    together = [Trainer(tiny_task(**change)) for change in changes]
    ends = {event.index: event.value for event in collect(together, steps, 3)}
    for index, change in enumerate(changes):
        alone = Trainer(tiny_task(**change))
        assert in_one_go(training(alone, Recorder())).final == ends[index].final
        assert weights_equal(alone.task.network, together[index].task.network)
