"""What a run takes besides steps and measuring is that of a real, tracked run, once its store is there."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from benchmarks import run_cost
from fa_registry.training.captured import CAPTURED
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.training import TrainingResult

CPU = torch.device("cpu")


def test_what_is_timed_is_a_complete_and_tracked_run(monkeypatch, workplace):
    results, tracked = [], run_cost._tracked
    monkeypatch.setattr(run_cost, "_tracked", lambda job: results.append(tracked(job)))
    monkeypatch.setattr(run_cost.tempfile, "TemporaryDirectory", lambda: nullcontext(workplace))
    run_cost.run_cost(CPU, 1, rounds=1)
    assert [(type(one), one.status, one.epochs) for one in results] == 2 * [(TrainingResult, "complete", 1)]
    assert results[0].run_id != results[1].run_id


def test_the_bare_run_has_all_its_epochs_every_time():
    trainer = Trainer(run_cost.prepare(run_cost._spec(0, 2, CPU), CPU))
    bare = run_cost._bare(trainer)
    assert [bare().epochs, bare().epochs] == [2, 2]


def test_the_first_run_is_not_counted_and_the_bare_epochs_are_taken_off(monkeypatch):
    taken = iter([90.0, 1.0, 5.0, 1.0, 8.0, 2.0, 7.0, 2.0])
    monkeypatch.setattr(run_cost, "seconds", lambda work, device: next(taken))
    assert run_cost.run_cost(CPU, 1) == 5.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_card_the_bare_run_has_its_graphs():
    device = torch.device("cuda")
    trainer = Trainer(run_cost.prepare(run_cost._spec(0, 4, device), device))
    run_cost._bare(trainer)()
    assert trainer.stepping == CAPTURED
