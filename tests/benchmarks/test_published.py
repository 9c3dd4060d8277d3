"""The baseline is fair: it computes what the package computes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import published_card
from benchmarks.fair_loop import VARIANTS, FairLoop
from benchmarks.published_epoch import PublishedEpoch, accuracy, layers
from benchmarks.published_loop import PublishedLoop
from benchmarks.tasks import cifar_task
from fa_registry.architectures._layers import Linear
from fa_registry.tasks import classification
from fa_registry.training import measuring
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import tiny_task

BATCH = 128
RELATIVE = 1e-5


@pytest.fixture
def task() -> RunSetup:
    return cifar_task("dfa", BATCH, BATCH)


LOOPS = {"published": PublishedLoop} | {
    name: lambda task, fused=fused: FairLoop(task, fused) for name, fused in VARIANTS.items()
}


@pytest.fixture(params=LOOPS)
def make_loop(request):
    return LOOPS[request.param]


def test_one_step_gives_the_same_parameters_and_loss(task, make_loop):
    start = copy.deepcopy(task.network.state_dict())
    loop, trainer = make_loop(task), Trainer(task)
    images, labels = task.splits.test_images, task.splits.test_labels

    loss = loop.step(images, labels)
    assert all(torch.equal(start[name], value) for name, value in task.network.state_dict().items())  # the task stays
    sums = trainer.step(images, labels)

    assert float(loss) == pytest.approx(sums.loss.item() / BATCH, rel=RELATIVE)
    theirs = loop.network.state_dict()
    for name, ours in trainer.setup.network.state_dict().items():
        moved = (theirs[name] - start[name]).norm()
        assert moved > 0, name
        assert (ours - theirs[name]).norm() <= RELATIVE * theirs[name].norm(), name
        # a step is small: 1e-5 of the weights alone would hardly see a wrong one
        assert (ours - theirs[name]).norm() <= 1e-3 * moved, name


def test_the_gradients_are_the_same(task, make_loop):
    """Adam's first step is close to a sign: equal gradients say more than equal parameters."""
    loop, trainer = make_loop(task), Trainer(task)
    images, labels = task.splits.test_images, task.splits.test_labels
    loop.step(images, labels)
    trainer.step(images, labels)
    theirs = dict(loop.network.named_parameters())
    for name, ours in trainer.setup.network.named_parameters():
        assert (ours.grad - theirs[name].grad).norm() <= RELATIVE * theirs[name].grad.norm(), name


def test_the_layers_are_those_of_torch(task, make_loop):
    assert Linear.forward not in {type(module).forward for module in make_loop(task).network.modules()}


@pytest.fixture
def task_published_epoch() -> RunSetup:
    return cifar_task("dfa", BATCH, 2 * BATCH + 5)


def test_every_layers_figures_are_those_that_ours_measures(task_published_epoch):
    ours = measuring.measure(task_published_epoch)
    feedback = [task_published_epoch.feedback.matrix(block) for block in range(1, task_published_epoch.blocks + 1)]
    found = layers(task_published_epoch.network, feedback, *task_published_epoch.eval_batch)
    assert len(found) == task_published_epoch.blocks + 1
    for name, theirs in {
        "h_norm": [one.hidden_norm for one in found],
        "g_norm_mean_ce": [one.gradient_norm for one in found],
        "gamma": [one.gamma for one in found],
    }.items():
        for site, (reading, value) in enumerate(zip(ours.sites[name], theirs, strict=True)):
            if value is not None and reading.value is not None:
                # torch's median is the lower of the two in the middle, the package's their mean
                assert value == pytest.approx(reading.value, rel=2e-2, abs=1e-4), (name, site)
    assert sum(reading.value is not None for reading in ours.sites["gamma"]) >= task_published_epoch.blocks


def test_the_accuracy_is_that_of_ours(task_published_epoch):
    images, labels = task_published_epoch.splits.test_images, task_published_epoch.splits.test_labels
    loader = DataLoader(TensorDataset(images, labels), 100)
    assert accuracy(task_published_epoch.network.eval(), loader) == classification.accuracy(
        task_published_epoch.network, images, labels
    )


def test_an_epoch_trains_on_every_image_and_tests_on_a_fifth_as_many(task_published_epoch, monkeypatch):
    published = PublishedEpoch(task_published_epoch, 300)
    before = [value.clone() for value in published.loop.network.state_dict().values()]
    steps: list[int] = []
    step = published.loop.step
    monkeypatch.setattr(
        published.loop, "step", lambda images, labels: steps.append(len(labels)) or step(images, labels)
    )
    published.train, published.test = (
        DataLoader(loader.dataset, BATCH, shuffle=loader is published.train)
        for loader in (published.train, published.test)
    )
    found, figures = published.run()
    assert sum(steps) == 300 and len(published.test.dataset) == 60
    seen = [published.test.dataset[0][0] for _ in range(9)]
    assert all(torch.equal(seen[0], image) for image in seen)  # images to test on are not augmented
    assert 0 <= found <= 1 and len(figures) == task_published_epoch.blocks + 1
    assert published.loop.network.training
    changed = zip(before, published.loop.network.state_dict().values(), strict=True)
    assert not any(torch.equal(old, new) for old, new in changed)


@pytest.fixture
def seen(monkeypatch):
    """Sizes of the batches that were trained on, in order."""
    sizes, step = [], PublishedLoop.step
    monkeypatch.setattr(
        PublishedLoop, "step", lambda loop, images, labels: sizes.append(len(images)) or step(loop, images, labels)
    )
    return sizes


@pytest.mark.long
def test_an_epoch_is_every_sample_once_a_test_and_a_look_at_every_layer(seen):
    torch.manual_seed(0)
    work = published_card.epoch(tiny_task())
    first, layers = work()
    assert seen == 11 * [128] + [29] and len(layers) == 3
    for _ in range(20):
        last, _ = work()
    assert last > first + 0.05
