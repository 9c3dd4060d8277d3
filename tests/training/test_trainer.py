"""The Trainer: what an epoch reports is that epoch's own, and process noise is there while it trains."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from fa_registry.training.step import StepSums
from fa_registry.training.trainer import Trainer
from tests.helpers.small import tiny_task


class Counting(Trainer):
    """Every sample has the same loss and penalty; the samples of one class in ten are right."""

    def step(self, images, labels):
        count = torch.tensor(float(len(labels)))
        return StepSums(2.5 * count, (labels == 0).sum(), 0.25 * count)


def test_every_epoch_reports_means_over_its_own_samples_the_last_short_batch_included():
    trainer = Counting(tiny_task(batch_size=100))  # 1437 samples
    zeros = (trainer.task.splits.train_labels == 0).double().mean().item()
    for _ in range(2):
        losses = {name: reading.value for name, reading in trainer.run_epoch().items()}
        assert losses == pytest.approx({"loss_train": 2.5, "accuracy_train": zeros, "penalty": 0.25}, rel=1e-12)


def test_an_epoch_trains_with_process_noise_from_the_runs_own_stream():
    def network(sigma):
        options = {"num_blocks": 2, "sigma": sigma, "learn": True}
        trainer = Trainer(tiny_task(method="bp", architecture="linear_lq", architecture_options=options))
        before = trainer.generators["noise"].get_state()
        trainer.run_epoch()
        assert all(block.noise is None for block in trainer.task.network.blocks)  # measuring has none
        return trainer.task.network, torch.equal(trainer.generators["noise"].get_state(), before)

    (still, _), (shaken, kept) = network(0.0), network(0.5)
    assert not kept
    assert not torch.equal(still.blocks[0].a.weight, shaken.blocks[0].a.weight)


def test_a_run_that_fails_in_an_epoch_lets_the_card_finish_what_it_began(monkeypatch):
    """Its memory is given to the runs beside it at once, and the card is still at work on the steps before."""

    class Stream:
        def __init__(self):
            self.heard = []

        def wait_stream(self, other):
            self.heard.append("waits for the others")

        def synchronize(self):
            self.heard.append("finishes")

    trainer = Trainer(tiny_task())
    trainer._stream = Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    trainer.begin_epoch()
    assert set(trainer._stream.heard) == {"waits for the others"}
    monkeypatch.setattr(Trainer, "step", lambda self, images, labels: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.begin_epoch()
    assert trainer._stream.heard[-1] == "finishes"


@pytest.mark.parametrize(("batch_size", "steps"), [(128, 8), (480, 3), (1437, 1)])
def test_the_state_after_the_first_steps_is_kept_as_it_was_then(batch_size, steps):
    """The eighth step, or the last of an epoch with fewer; a copy, which later steps leave alone."""
    kept, followed = Trainer(tiny_task(batch_size=batch_size)), Trainer(tiny_task(batch_size=batch_size))
    kept.run_epoch()
    early = {name: tensor.clone() for name, tensor in kept.early.tensors.items()}
    kept.run_epoch()
    followed.begin_epoch(lambda batches: batches[:steps])
    assert kept.early.step == steps and followed.early is None
    assert all(torch.equal(early[name], tensor) for name, tensor in followed.state().items())
    assert all(torch.equal(early[name], tensor) for name, tensor in kept.early.tensors.items())
    assert not torch.equal(early["network.out_head.weight"], kept.task.network.out_head.weight)
