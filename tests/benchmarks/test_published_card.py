"""The published loop with its data on the device does what it does elsewhere: an epoch is all batches, a test and a look."""

from __future__ import annotations

import pytest
import torch

from benchmarks import published_card
from benchmarks.published_loop import PublishedLoop
from tests.helpers.small import tiny_task


@pytest.fixture
def seen(monkeypatch):
    """Sizes of the batches that were trained on, in order."""
    sizes, step = [], PublishedLoop.step
    monkeypatch.setattr(
        PublishedLoop, "step", lambda loop, images, labels: sizes.append(len(images)) or step(loop, images, labels)
    )
    return sizes


def test_an_epoch_is_every_sample_once_a_test_and_a_look_at_every_layer(seen):
    torch.manual_seed(0)
    work = published_card.epoch(tiny_task())
    first, layers = work()
    assert seen == 11 * [128] + [29] and len(layers) == 3
    for _ in range(20):
        last, _ = work()
    assert last > first + 0.05


def test_steps_are_counted(seen):
    published_card.steps(tiny_task(), 3)()
    assert seen == 3 * [128]
