"""Asking a method: weights are held meanwhile, feedback learns by its loss or its rule, bad credits are named before training."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from fa_registry.errors import PluginError
from fa_registry.methods.base import HasFeedbackRule, LearnsFeedbackByLoss
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.seeding import generator
from fa_registry.training.loop import train
from fa_registry.training.method_calls import frozen_weights
from fa_registry.training.run_setup import network_shape
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import SEED, Recorder, tiny_task, weights_equal


class Follower(DirectFeedbackAlignment, LearnsFeedbackByLoss, HasFeedbackRule):
    """Its parameter is drawn to the network's first weight; its counter counts steps; it notes the inputs that it received."""

    def __init__(self):
        self.received = []

    def feedback(self, shape, options, generator):
        module = super().feedback(shape, options, generator)
        module.guess = nn.Parameter(torch.zeros(()))
        module.register_buffer("steps", torch.zeros(()))
        return module

    def feedback_loss(self, feedback, inputs):
        weight = inputs.network.get_submodule("blocks.0.w1").weight
        assert not weight.requires_grad and weight.grad is not None  # held, and the network's own gradients are there
        self.received.append((inputs.progress, inputs.generator, len(inputs.labels), inputs.images.shape))
        return (feedback.guess - 3.0) ** 2

    def update_feedback(self, feedback, inputs):
        assert not torch.is_grad_enabled()
        feedback.steps += 1


def task_of(method, **changes):
    """The tiny dfa task, trained by `method` with a feedback state that the method draws."""
    task = tiny_task(**changes)
    shape = network_shape(task.network, task.eval_batch[0][:1], 10)
    return dataclasses.replace(task, method=method, feedback=method.feedback(shape, {}, generator(SEED, "feedback")))


def test_a_feedback_learns_by_its_loss_under_the_recipe_and_by_its_rule():
    method = Follower()
    task = task_of(method, epochs=4)
    trainer = Trainer(task)
    trainer.run_epoch()
    assert task.feedback.steps.item() == 12  # 1,437 samples in batches of 128
    assert 0.011 < task.feedback.guess.item() < 0.0121  # twelve AdamW steps of about 1e-3
    assert [one[0] for one in method.received] == [0.0] * 12
    assert method.received[0][2] == 128 and method.received[0][3] == (128, 1, 12, 12)
    trainer.run_epoch()
    assert method.received[-1][0] == 0.25
    assert all(one[1] is trainer.generators["method"] for one in method.received)


def test_learning_feedback_changes_nothing_else():
    plain, following = Trainer(tiny_task()), Trainer(task_of(Follower()))
    plain.run_epoch()
    following.run_epoch()
    assert weights_equal(plain.setup.network, following.setup.network)
    assert torch.equal(plain.setup.feedback.B_01, following.setup.feedback.B_01)


def test_held_weights_take_no_gradient_and_are_let_go_again():
    layer = nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    x = torch.ones(1, 3, requires_grad=True)
    with frozen_weights(layer):
        layer(x).sum().backward()
    assert layer.weight.grad is None and x.grad is not None
    assert layer.weight.requires_grad and not layer.bias.requires_grad


class Broken(DirectFeedbackAlignment):
    """What it returns at site 1 is wrong."""

    def __init__(self, spoil):
        self.spoil = spoil

    def credits(self, feedback, inputs):
        credits = super().credits(feedback, inputs)
        credits[1] = self.spoil(credits[1].clone())
        return credits


def spotted(credit):
    credit[2, 3] = float("nan")
    return credit


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (
            lambda credit: credit[:, :-1],
            r"method 'dfa', site 1: expected a credit of shape \(128, 16\), found \(128, 15\)",
        ),
        (
            spotted,
            r"method 'dfa', site 1: expected a finite credit, .*found inf or nan in 1 of 2048 entries, shape \(128, 16\)",
        ),
    ],
)
def test_a_bad_credit_is_named_before_anything_is_trained(spoil, text):
    task = task_of(Broken(spoil))
    before = {name: weight.clone() for name, weight in task.network.state_dict().items()}
    with pytest.raises(PluginError, match=text):
        train(Trainer(task), Recorder())
    assert all(torch.equal(weight, before[name]) for name, weight in task.network.state_dict().items())


def test_a_network_that_is_not_finite_itself_is_no_fault_of_the_method():
    task = tiny_task()
    with torch.no_grad():
        task.network.embed.weight[0, 0] = float("inf")
    recorder = Recorder()
    assert train(Trainer(task), recorder).status == "diverged"
    assert len(recorder.rows) == 1
