"""--device cuda:1: where training and measuring take place, on a machine whose cards are made up and whose work is a CPU's."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from fa_registry.evidence import remeasure
from fa_registry.training import device_names
from fa_registry.training.trainer import Trainer
from tests.commands.conftest import TRAIN, fields
from tests.commands.test_audit import run_of

pytestmark = pytest.mark.long

SECOND = ("--device", "cuda:1")


@pytest.fixture
def current(monkeypatch):
    """Which card is current; two of them, and what is trained on either is trained by the CPU."""
    now = [0]

    @contextmanager
    def device(index):
        before, now[0] = now[0], index
        yield
        now[0] = before

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(device_names, "resolve", lambda name: "cpu")
    monkeypatch.setitem(remeasure.TYPED, "device", str)
    return now


@pytest.fixture
def trained_on(current, monkeypatch):
    """The card that was current in every epoch that was trained."""
    seen: list[int] = []
    genuine = Trainer.begin_epoch

    def begin(self):
        seen.append(current[0])
        return genuine(self)

    monkeypatch.setattr(Trainer, "begin_epoch", begin)
    return seen


def test_training_takes_the_card_that_was_named(registry, trained_on, current, in_this_process):
    assert registry(*TRAIN[:-1], "cuda:1").exit_code == 0
    assert registry("study", "tiny", "--jobs", "1", *SECOND).exit_code == 0
    assert set(trained_on) == {1} and current == [0]


def test_measuring_takes_the_card_that_was_named(measured_each_time, trained, current, monkeypatch):
    seen: list[int] = []
    genuine = remeasure.remeasure
    monkeypatch.setattr(remeasure, "remeasure", lambda *arguments: seen.append(current[0]) or genuine(*arguments))
    one = ("--run", run_of("dfa").run_id)
    for command in (
        ("audit", *one, "--exit-zero"),
        ("verify", *one),
        ("compare", "dfa", "bp", "--study", "tiny", "--recompute"),
        ("analyse", "aggregation", *one, "--recompute"),
    ):
        assert trained(*command, "--jobs", "1", *SECOND).exit_code == 0
        assert set(seen) == {1} and current == [0], command
        seen.clear()


@pytest.mark.parametrize(
    "command", [("audit", "--run", "4f1c"), ("verify", "--run", "4f1c"), ("audit", "--study", "tiny")]
)
def test_a_card_that_is_not_there_is_refused_before_the_store_is_opened(registry, command):
    result = registry(*command, "--device", "cuda:7")
    assert fields(result) == ["device"], result.stderr
