"""How long many jobs still take, from what was trained since the start."""

from __future__ import annotations

import logging

import pytest

from fa_registry.studies import progress
from fa_registry.studies.executors.base import JobEvent
from fa_registry.studies.progress import Progress, TimeLeft, duration


def test_half_of_the_epochs_take_as_long_again():
    left = TimeLeft(2)
    assert left.seconds(10.0) is None
    left.report(0, 0, 10)
    assert left.seconds(10.0) is None  # the first measurement: nothing is trained yet
    left.report(0, 5, 10)
    assert left.seconds(30.0) == pytest.approx(90.0)  # 5 of 20 epochs, the second job counted as long as the first
    left.end(0)
    left.report(1, 0, 10)
    assert left.seconds(60.0) == pytest.approx(60.0)
    left.end(1)
    assert left.seconds(120.0) == 0


def test_epochs_from_before_a_resume_are_not_work_of_now():
    left = TimeLeft(1)
    left.report(0, 80, 100)
    left.report(0, 90, 100)
    assert left.seconds(7.0) == pytest.approx(7.0)


def test_jobs_that_report_no_epochs_count_alike():
    left = TimeLeft(4)
    left.end(2)
    assert left.seconds(5.0) == pytest.approx(15.0)


def test_a_short_run_is_one_line_when_it_ends_and_one_when_a_rule_fires(caplog):
    with caplog.at_level(logging.INFO), Progress("one run", ["a"], str) as shown:
        for epoch in range(51):
            shown.show(JobEvent(0, "progress", (epoch, 50, "", {"D1": 30} if epoch >= 30 else {})))
        shown.show(JobEvent(0, "done", "complete"))
    _, fired, ended = caplog.messages
    assert "D1" in fired and "30" in fired and "complete" in ended


def test_a_silent_minute_ends_with_one_line_for_all_jobs(caplog, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO), Progress("two runs", ["a", "b"], str) as shown:
        for epoch in range(10):
            now[0] += 20.0
            shown.show(JobEvent(0, "progress", (epoch, 10, "", {})))
            shown.show(JobEvent(1, "progress", (epoch, 10, "", {})))
    assert [line.split("  ")[-1].split(",")[0] for line in caplog.messages[1:]] == [
        f"a: epoch {epoch} of 10" for epoch in (2, 5, 8)
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "N/A"), (45.0, "45 s"), (720.0, "12 min"), (12_240.0, "3.4 h"), (89.4, "89 s")]
)
def test_a_duration_is_short(seconds, text):
    assert duration(seconds) == text
