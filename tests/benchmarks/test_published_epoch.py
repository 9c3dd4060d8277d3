"""The published epoch does the published work: its figures are those that ours measures."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.published_epoch import PublishedEpoch, accuracy, layers
from benchmarks.tasks import cifar_task
from fa_registry.training import measuring
from fa_registry.training.task import Task

BATCH = 128


@pytest.fixture
def task() -> Task:
    return cifar_task("dfa", BATCH, 2 * BATCH + 5)


def test_every_layers_figures_are_those_that_ours_measures(task):
    ours = measuring.measure(task)
    feedback = [task.feedback.matrix(block) for block in range(1, task.blocks + 1)]
    found = layers(task.network, feedback, *task.eval_batch)
    assert len(found) == task.blocks + 1
    for name, theirs in {
        "h_norm": [one.hidden_norm for one in found],
        "g_norm_mean_ce": [one.gradient_norm for one in found],
        "gamma": [one.gamma for one in found],
    }.items():
        for site, (reading, value) in enumerate(zip(ours.sites[name], theirs, strict=True)):
            if value is not None and reading.value is not None:
                # torch's median is the lower of the two in the middle, ours their mean
                assert value == pytest.approx(reading.value, rel=2e-2, abs=1e-4), (name, site)
    assert sum(reading.value is not None for reading in ours.sites["gamma"]) >= task.blocks


def test_the_accuracy_is_that_of_ours(task):
    images, labels = task.splits.test_images, task.splits.test_labels
    loader = DataLoader(TensorDataset(images, labels), 100)
    assert accuracy(task.network.eval(), loader) == measuring.accuracy(task.network, images, labels)


def test_an_epoch_trains_on_every_image_and_tests_on_a_fifth_as_many(task, monkeypatch):
    published = PublishedEpoch(task, 300)
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
    assert all(torch.equal(seen[0], image) for image in seen), "images to test on are not augmented"
    assert 0 <= found <= 1 and len(figures) == task.blocks + 1
    assert published.loop.network.training
    changed = zip(before, published.loop.network.state_dict().values(), strict=True)
    assert not any(torch.equal(old, new) for old, new in changed)
