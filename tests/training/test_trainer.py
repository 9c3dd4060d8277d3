"""The Trainer: what an epoch reports is that epoch's own, and process noise is there while it trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.training.resume import ResumeFile
from fa_registry.training.step import StepSums
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import tiny_task


class Counting(Trainer):
    """Every sample has the same loss and penalty; the samples of one class in ten are right."""

    def step(self, images, labels):
        count = torch.tensor(float(len(labels)))
        return StepSums(2.5 * count, (labels == 0).sum(), 0.25 * count)


def test_every_epoch_reports_means_over_its_own_samples_the_last_short_batch_included():
    trainer = Counting(tiny_task(batch_size=100))  # 1437 samples
    zeros = (trainer.setup.splits.train_labels == 0).double().mean().item()
    for _ in range(2):
        losses = {name: reading.value for name, reading in trainer.run_epoch().items()}
        assert losses == pytest.approx({"loss_train": 2.5, "accuracy_train": zeros, "penalty": 0.25}, rel=1e-12)


def test_an_epoch_trains_with_process_noise_from_the_runs_own_stream():
    def network(sigma):
        options = {"num_blocks": 2, "sigma": sigma, "learn": True}
        trainer = Trainer(tiny_task(method="bp", architecture="linear_lq", architecture_options=options))
        before = trainer.generators["noise"].get_state()
        trainer.run_epoch()
        assert all(block.noise is None for block in trainer.setup.network.blocks)  # measuring has none
        return trainer.setup.network, torch.equal(trainer.generators["noise"].get_state(), before)

    (still, _), (shaken, kept) = network(0.0), network(0.5)
    assert not kept
    assert not torch.equal(still.blocks[0].a.weight, shaken.blocks[0].a.weight)


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
    assert not torch.equal(early["network.out_head.weight"], kept.setup.network.out_head.weight)


def test_sgd_moves_along_the_gradient_and_decays():
    trainer = Trainer(tiny_task(method="dfa", optimizer="sgd", learning_rate=0.1, weight_decay=0.2))
    before = [parameter.detach().clone() for parameter in trainer.parameters]
    splits = trainer.setup.splits
    trainer.step(splits.test_images[:8], splits.test_labels[:8])
    for start, parameter in zip(before, trainer.parameters, strict=True):
        expected = start - 0.1 * (parameter.grad + 0.2 * start)
        torch.testing.assert_close(parameter.detach(), expected)
    assert not torch.equal(before[0], trainer.parameters[0])


def gradient_steps(trainer, count):
    """Take steps on one batch; return the gradients and, before and after every step, the weights, each as float64 vectors."""
    splits, gradients, weights = trainer.setup.splits, [], [flat(trainer.parameters)]
    for _ in range(count):
        trainer.step(splits.test_images[:8], splits.test_labels[:8])
        gradients.append(flat([parameter.grad for parameter in trainer.parameters]))
        weights.append(flat(trainer.parameters))
    return gradients, weights


def flat(tensors):
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors]).numpy()


def test_momentum_is_the_sum_of_decayed_gradients():
    trainer = Trainer(tiny_task(optimizer="sgd", learning_rate=0.1, momentum=0.9, weight_decay=0.2))
    gradients, weights = gradient_steps(trainer, 4)
    velocity = 0.0
    for gradient, before, after in zip(gradients, weights[:-1], weights[1:], strict=True):
        velocity = 0.9 * velocity + gradient + 0.2 * before
        np.testing.assert_allclose(after, before - 0.1 * velocity, atol=1e-6)


def test_adamw_takes_its_decay_rates_and_epsilon_from_the_recipe():
    rate, decay, betas, eps = 0.01, 0.2, (0.5, 0.7), 1e-2
    task = tiny_task(learning_rate=rate, weight_decay=decay, beta1=betas[0], beta2=betas[1], adam_eps=eps)
    gradients, weights = gradient_steps(Trainer(task), 3)
    first = second = 0.0
    for step, (gradient, before, after) in enumerate(zip(gradients, weights[:-1], weights[1:], strict=True), 1):
        first, second = (
            beta * moment + (1 - beta) * gradient**power
            for beta, moment, power in zip(betas, (first, second), (1, 2), strict=True)
        )
        mean, root = first / (1 - betas[0] ** step), np.sqrt(second / (1 - betas[1] ** step))
        np.testing.assert_allclose(after, before * (1 - rate * decay) - rate * mean / (root + eps), atol=1e-6)


@pytest.mark.parametrize("method", ["bp", "dfa", "kolen_pollack"])
def test_the_norm_of_all_gradients_is_at_most_the_limit(method):
    free, _ = gradient_steps(Trainer(tiny_task(method=method)), 1)
    network = [parameter.numel() for parameter in tiny_task(method=method).network.parameters()]
    norm = np.linalg.norm(free[0][: sum(network)])
    for limit, scale in ((norm / 3, 1 / 3), (3 * norm, 1)):
        found, _ = gradient_steps(Trainer(tiny_task(method=method, clip_gradient=limit)), 1)
        np.testing.assert_allclose(found[0], scale * free[0], rtol=1e-4, atol=1e-12)  # the feedback's own too


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("method", ["bp", "kolen_pollack"])
def test_a_run_under_sgd_resumes_bit_equal(tmp_path, method, momentum):
    raw = {"method": method, "optimizer": "sgd", "learning_rate": 0.05, "epochs": 2, "momentum": momentum}
    whole, first, second = (Trainer(tiny_task(**raw)) for _ in range(3))
    whole.run_epoch(), whole.run_epoch()
    first.run_epoch()
    ResumeFile(tmp_path, "sgd").write(first, [])
    ResumeFile(tmp_path, "sgd").read_into(second)
    second.run_epoch()
    for here, there in zip(whole.parameters, second.parameters, strict=True):
        assert torch.equal(here, there)
