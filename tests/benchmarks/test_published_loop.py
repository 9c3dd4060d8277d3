"""The baseline is fair: it computes what ours computes."""

from __future__ import annotations

import copy

import pytest
import torch

from benchmarks.published_loop import PublishedLoop
from benchmarks.tasks import cifar_task
from fa_registry.architectures._layers import Linear
from fa_registry.training.task import Task
from fa_registry.training.trainer import Trainer

BATCH = 128
RELATIVE = 1e-5


@pytest.fixture
def task() -> Task:
    return cifar_task("dfa", BATCH, BATCH)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("our_layer", [False, True])
def test_one_step_gives_the_same_parameters_and_loss(task, fused, our_layer):
    start = copy.deepcopy(task.network.state_dict())
    loop, trainer = PublishedLoop(task, fused, our_layer), Trainer(task)
    images, labels = task.splits.test_images, task.splits.test_labels

    loss = loop.step(images, labels)
    sums = trainer.step(images, labels)

    assert loss == pytest.approx(sums.loss.item() / BATCH, rel=RELATIVE)
    theirs = loop.network.state_dict()
    for name, ours in trainer.task.network.state_dict().items():
        moved = (theirs[name] - start[name]).norm()
        assert moved > 0, f"{name} was not trained"
        assert (ours - theirs[name]).norm() <= RELATIVE * theirs[name].norm(), name
        # a step is small: 1e-5 of the weights alone would hardly see a wrong one
        assert (ours - theirs[name]).norm() <= 1e-3 * moved, name


def test_the_gradients_are_the_same(task):
    """Adam's first step is close to a sign: equal gradients say more than equal parameters."""
    loop, trainer = PublishedLoop(task), Trainer(task)
    images, labels = task.splits.test_images, task.splits.test_labels
    loop.step(images, labels)
    trainer.step(images, labels)
    theirs = dict(loop.network.named_parameters())
    for name, ours in trainer.task.network.named_parameters():
        assert (ours.grad - theirs[name].grad).norm() <= RELATIVE * theirs[name].grad.norm(), name


def test_the_task_stays_as_it_is(task):
    before = copy.deepcopy(task.network.state_dict())
    PublishedLoop(task).step(task.splits.test_images, task.splits.test_labels)
    assert all(torch.equal(before[name], value) for name, value in task.network.state_dict().items())


def test_as_published_no_layer_is_ours(task):
    published = {type(module).forward for module in PublishedLoop(task).network.modules()}
    assert Linear.forward not in published
    assert Linear.forward in {type(module).forward for module in PublishedLoop(task, our_layer=True).network.modules()}
