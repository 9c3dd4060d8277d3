"""Progress as it is told: one line an event that matters."""

from __future__ import annotations

from fa_registry.studies.executors.base import JobEvent
from fa_registry.workflows.progress import Progress
from fa_registry.workflows.training import TrainingResult, training_words


def lines(caplog, events, words=training_words):
    caplog.set_level("INFO", "fa_registry")
    with Progress("title", ["one", "two [b]"], words) as progress:
        for event in events:
            progress.show(event)
    return [line.split(" s  ")[-1] for line in caplog.messages][1:]


def test_a_rule_is_told_when_it_fires_once_a_run(caplog):
    news = [{}, {"D1": 2}, {"D1": 2}, {"D1": 2, "D2": 4}]
    events = [JobEvent(1, "progress", (epoch, 5, "accuracy 0.500", fired)) for epoch, fired in enumerate(news)]
    events.append(JobEvent(0, "progress", (3, 5, "", {"D1": 3})))
    assert lines(caplog, events) == [
        "two [b]: D1 fired at epoch 2",
        "two [b]: D2 fired at epoch 4",
        "one: D1 fired at epoch 3",
    ]


def test_how_a_run_ended(caplog):
    whole = TrainingResult("r", "complete", 5, 2, {"accuracy": 0.5}, {"D1": 2})
    early = TrainingResult("r", "stopped_early", 2, 0, {"accuracy": 0.5}, {"D1": 2}, "D1 at epoch 2")
    ends = [JobEvent(0, "done", whole), JobEvent(1, "done", early), JobEvent(0, "failed", "Traceback\nKeyError: 3\n")]
    assert lines(caplog, ends) == [
        "one: complete, resumed after epoch 2: accuracy 0.5, D1 fired at epoch 2",
        "two [b]: stopped early, D1 at epoch 2: accuracy 0.5, D1 fired at epoch 2",
        "one: FAILED: KeyError: 3",
    ]


def test_another_kind_of_job_has_words_of_its_own(caplog):
    assert lines(caplog, [JobEvent(0, "done", 7)], words=lambda result: f"seven is {result}") == ["one: seven is 7"]
