"""Work is timed in turns, on the cores it is given."""

from __future__ import annotations

import os

from benchmarks.timing import by_the_clock, on_cores


def test_by_the_clock_each_runs_once_untimed_and_the_order_is_reversed_from_round_to_round():
    order: list[str] = []
    seconds = by_the_clock({name: lambda name=name: order.append(name) for name in "ab"}, rounds=3)
    assert order == list("abbaabba")
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}


def test_it_keeps_to_the_cores_it_is_given():
    before = os.sched_getaffinity(0)
    with on_cores(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
