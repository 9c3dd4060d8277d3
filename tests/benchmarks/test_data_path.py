"""The table of data and step together says what was met."""

from __future__ import annotations

from benchmarks.data_path import JOBS, OURS, PUBLISHED, Throughput, throughput_lines
from benchmarks.timing import Spread


def test_a_missed_target_is_said():
    times = {PUBLISHED: 50.0, OURS: 20.0, JOBS: 12.0}
    slow, fast = Spread(2.5, 2.0, 3.0), Spread(4.2, 4.0, 5.0)
    assert throughput_lines(Throughput(times, {OURS: slow, JOBS: slow}))[-1].endswith("MISSED")
    assert throughput_lines(Throughput(times, {OURS: slow, JOBS: fast}))[-1].endswith("met")
