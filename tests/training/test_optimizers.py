"""recipe.optimizer: the network's optimiser, and that of a learning feedback."""

from __future__ import annotations

import pytest
import torch

from fa_registry.training.resume import ResumeFile
from fa_registry.training.trainer import Trainer
from tests.helpers.small import tiny_task


def test_sgd_moves_along_the_gradient_and_decays():
    trainer = Trainer(tiny_task(method="dfa", optimizer="sgd", learning_rate=0.1, weight_decay=0.2))
    before = [parameter.detach().clone() for parameter in trainer.parameters]
    splits = trainer.task.splits
    trainer.step(splits.test_images[:8], splits.test_labels[:8])
    for start, parameter in zip(before, trainer.parameters, strict=True):
        expected = start - 0.1 * (parameter.grad + 0.2 * start)
        torch.testing.assert_close(parameter.detach(), expected)
    assert not torch.equal(before[0], trainer.parameters[0])


@pytest.mark.parametrize("method", ["bp", "kolen_pollack"])
def test_a_run_under_sgd_resumes_bit_equal(tmp_path, method):
    raw = {"method": method, "optimizer": "sgd", "learning_rate": 0.05, "epochs": 2}
    whole, first, second = (Trainer(tiny_task(**raw)) for _ in range(3))
    whole.run_epoch(), whole.run_epoch()
    first.run_epoch()
    ResumeFile(tmp_path, "sgd").write(first, [])
    ResumeFile(tmp_path, "sgd").read_into(second)
    second.run_epoch()
    for here, there in zip(whole.parameters, second.parameters, strict=True):
        assert torch.equal(here, there)
