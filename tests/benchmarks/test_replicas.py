"""The ways that are compared train the same: stacked replicas as separate ones, unrolled steps as single ones."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

from benchmarks.replicas import ALONE, STACKED, TURNS, UNROLLED, Unrolled, compare_ways, way_lines
from benchmarks.stacked import StackedDfa
from fa_registry.training.cuda_graph import CAPTURED, WARM_UP
from fa_registry.training.run_setup import build_setup
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import tiny_spec, tiny_task, weights_equal

STEPS = WARM_UP + 2
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]


def middle(images, generator):
    return images[:, :, 2:-2, 2:-2]


def test_stacked_replicas_take_the_steps_of_separate_ones():
    trainers = [Trainer(tiny_task(seed=seed)) for seed in (1, 2, 3)]
    stacked = StackedDfa(trainers)
    draw = torch.Generator().manual_seed(0)
    for _ in range(4):
        images, labels = torch.randn(3, 128, 1, 12, 12, generator=draw), torch.randint(10, (3, 128), generator=draw)
        losses, right = stacked.step(images, labels)
        for index, trainer in enumerate(trainers):
            sums = trainer.step(images[index], labels[index])
            assert losses[index].item() == pytest.approx(sums.loss.item(), rel=1e-5)
            assert right[index].item() == sums.score.item()
    for index, trainer in enumerate(trainers):
        for name, weight in trainer.setup.network.named_parameters():
            torch.testing.assert_close(stacked.weights[name][index], weight, rtol=1e-3, atol=2e-5, msg=name)


@pytest.mark.parametrize("device", DEVICES)
def test_every_replica_reads_its_own_indices(device):
    """On a card the first steps warm up, and the last are replayed, on a separate stream."""
    task = build_setup(tiny_spec(device=device), torch.device(device))
    plain = dataclasses.replace(task, splits=dataclasses.replace(task.splits, augment=middle))
    stacked = StackedDfa([Trainer(plain)] * 2)
    trainers = [Trainer(dataclasses.replace(plain, network=copy.deepcopy(plain.network))) for _ in range(2)]
    orders = torch.randperm(1437, device=device)[: STEPS * 256].split(256)
    stacked.take(orders)
    for order in orders:
        for trainer, rows in zip(trainers, order.split(128), strict=True):
            trainer._advance(rows)
    if device == "cuda":
        torch.cuda.synchronize()
        assert stacked.captured.how == CAPTURED
    losses = torch.stack([trainer._totals[0] for trainer in trainers])
    torch.testing.assert_close(stacked.totals[:, 0], losses, rtol=1e-4, atol=0)
    assert losses[0] != losses[1]
    for index, trainer in enumerate(trainers):
        for name, weight in trainer.setup.network.named_parameters():
            torch.testing.assert_close(stacked.weights[name][index], weight, rtol=1e-3, atol=2e-5, msg=name)


def test_unrolled_steps_are_the_single_ones():
    single, many = Trainer(tiny_task()), Trainer(tiny_task())
    Unrolled(many, 3).steps(2)()
    single.train_batch((torch.arange(6 * 128) % 1437).split(128))
    assert weights_equal(single.setup.network, many.setup.network)


@pytest.mark.parametrize("device", DEVICES)
def test_all_ways_run_and_are_distinguished(device):
    found = compare_ways(
        lambda seed: Trainer(build_setup(tiny_spec(seed=seed, device=device), torch.device(device))), 2, 16, 1
    )
    assert set(found) == {ALONE, TURNS, STACKED, UNROLLED}
    assert all(spread.low > 0 for spread in found.values())
    assert len(way_lines(found)) == 5
