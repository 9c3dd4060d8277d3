"""Which samples gradients are compared between."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry.datasets.base import Splits
from fa_registry.diagnostics import Absent
from fa_registry.training.bench import DisjointBatches, disjoint_batches


def splits(test: int, train: int) -> Splits:
    numbers = [torch.arange(count, dtype=torch.float32) for count in (train, test)]
    labels = [rows.long() % 10 for rows in numbers]

    def shift(batch, draw):
        return batch + torch.rand((), generator=draw)

    return Splits(numbers[0], labels[0], numbers[1], labels[1], augment=shift, digest="")


@pytest.mark.parametrize(
    ("test", "train", "expected"),
    [(1024, 0, "test"), (5000, 5000, "test"), (1023, 1024, "train"), (360, 1437, "train")],
)
def test_the_test_split_where_it_is_large_enough(test, train, expected):
    assert disjoint_batches(splits(test, train)) == DisjointBatches(expected, 8, 128)


def test_neither_is_large_enough():
    assert isinstance(disjoint_batches(splits(1023, 1023)), Absent)


def test_batches_are_disjoint_in_order_and_unaugmented_where_they_are_of_the_test_split():
    images, labels = zip(*DisjointBatches("test").batches(splits(2000, 0), torch.Generator()), strict=True)
    assert torch.cat(images).tolist() == list(range(1024))
    assert [len(batch) for batch in labels] == [128] * 8
    assert torch.equal(torch.cat(labels), torch.arange(1024) % 10)


def test_the_training_split_is_seen_as_in_training_by_the_generator_given():
    data = splits(0, 2000)
    seen = [
        torch.cat([batch for batch, _ in DisjointBatches("train").batches(data, torch.Generator().manual_seed(seed))])
        for seed in (0, 0, 1)
    ]
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])
    offset = (seen[0] - torch.arange(1024)).unique()
    assert 0 < offset[0] < 1 and offset.max() - offset.min() < 1e-3  # one draw for all of them


def test_sizes_can_be_others():
    batches = list(
        dataclasses.replace(DisjointBatches("test"), count=2, size=3).batches(splits(9, 0), torch.Generator())
    )
    assert [batch.tolist() for batch, _ in batches] == [[0, 1, 2], [3, 4, 5]]
