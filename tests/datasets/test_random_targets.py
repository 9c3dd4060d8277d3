"""random_targets: the same images, the same number of each class, nothing between them, once a seed."""

from __future__ import annotations

import pytest
import torch

from fa_registry import datasets
from fa_registry.datasets.random_targets import RandomTargets
from fa_registry.errors import UnknownName

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def splits():
    return datasets.get("random_targets:digits").load(CPU, None, 1)


@pytest.fixture(scope="module")
def digits():
    return datasets.get("digits").load(CPU)


@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_are_permuted_within_their_split(splits, digits, split):
    ours, theirs = (getattr(one, f"{split}_labels") for one in (splits, digits))
    assert torch.equal(getattr(splits, f"{split}_images"), getattr(digits, f"{split}_images"))
    assert torch.equal(ours.bincount(), theirs.bincount())
    agreeing = (ours == theirs).float().mean().item()
    assert agreeing < 0.1 + 4 * (0.09 / len(ours)) ** 0.5  # chance and four standard deviations


def test_it_is_once_a_seed(splits):
    again, other = (datasets.get("random_targets:digits").load(CPU, None, seed) for seed in (1, 2))
    assert torch.equal(again.train_labels, splits.train_labels) and again.digest == splits.digest
    assert not torch.equal(other.train_labels, splits.train_labels) and other.digest != splits.digest


def test_the_augmentation_is_the_source_s(splits, digits):
    batches = [one.augment(one.train_images[:9], torch.Generator().manual_seed(0)) for one in (splits, digits)]
    assert torch.equal(*batches)


def test_targets_without_classes_are_permuted_by_rows():
    ours, theirs = datasets.get("random_targets:lq").load(CPU, None, 1), datasets.get("lq").load(CPU)
    assert not torch.equal(ours.train_labels, theirs.train_labels)
    assert torch.equal(ours.train_labels.sum(dim=1).sort().values, theirs.train_labels.sum(dim=1).sort().values)


def test_the_source_may_have_an_argument_and_gives_the_card():
    member = datasets.get("random_targets:teacher_student:.5")
    assert member.card.name == "random_targets:teacher_student:0.5"
    assert member.card.image_shape == datasets.get("teacher_student").card.image_shape
    files = datasets.get("random_targets:cifar10")
    assert isinstance(files, RandomTargets) and files.card.files == datasets.get("cifar10").card.files


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("random_targets", "unknown data set of random_targets:NAME ''; known: cifar10, "),
        ("random_targets:random_targets:digits", "unknown data set of random_targets:NAME 'random_targets:digits'"),
        ("random_targets:digit", "unknown data set 'digit' .did you mean 'digits'"),
        ("random_targets:teacher_student:3", "unknown α of teacher_student '3'"),
    ],
)
def test_a_source_that_is_none_is_refused_with_the_choices(name, words):
    with pytest.raises(UnknownName, match=words):
        datasets.get(name)
