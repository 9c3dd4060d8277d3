"""tensors_digest sees type, shape, order and every bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fa_registry import datasets
from fa_registry.datasets import cifar10
from fa_registry.datasets.base import Dataset, DatasetFamily, tensors_digest
from fa_registry.datasets.lq import PLUGIN
from fa_registry.datasets.random_targets import RandomTargets
from fa_registry.errors import UnknownName


def test_digest_sees_every_difference():
    one = torch.arange(6, dtype=torch.float32)
    variants = [(one,), (one.double(),), (one.reshape(2, 3),), (one, one), (one + 1e-6,), (one.flip(0),)]
    assert len({tensors_digest(*tensors) for tensors in variants}) == len(variants)


def test_digest_does_not_depend_on_memory_layout():
    matrix = torch.arange(6.0).reshape(2, 3)
    assert tensors_digest(matrix.T) == tensors_digest(matrix.T.contiguous())


@pytest.mark.parametrize("name", datasets.CATALOG.names())
def test_every_member_has_a_card_by_its_name_and_a_file_set_says_so(name):
    member = datasets.CATALOG.get(name)
    assert isinstance(member, Dataset)
    assert member.card.name == name or isinstance(member, DatasetFamily)
    assert member.card.line and member.card.normalisation and member.card.augmentation
    assert bool(member.card.files) == ("needs files" in member.card.line)


def is_the_same(member: Dataset) -> bool:
    first, other = (member.load(torch.device("cpu"), None, seed) for seed in (0, 1))
    return first.digest == other.digest


WITH_ARGUMENTS = {
    "cifar_shaped": "cifar_shaped:1000",
    "random_targets": "random_targets:digits",
    "text": f"text:{Path(__file__).parents[2] / 'README.md'}",
}


@pytest.mark.parametrize("name", [WITH_ARGUMENTS.get(name, name) for name in datasets.CATALOG.names()])
def test_a_set_that_says_it_is_the_same_for_every_seed_is(name):
    member = datasets.get(name)
    hash(member)
    if not member.card.files:  # those are read whole, and nothing of them is drawn
        assert member.same_for_every_seed == is_the_same(member)


def test_a_plain_name_takes_no_argument():
    assert datasets.get("digits") is datasets.CATALOG.get("digits")
    for name in ("digits:1", "digits:", "digit"):
        with pytest.raises(UnknownName, match=f"unknown data set '{name}' .did you mean 'digits'.*; known: cifar10, "):
            datasets.get(name)


CPU = torch.device("cpu")


def test_sizes_and_moments():
    splits = PLUGIN.load(CPU)
    assert splits.train_images.shape == (25_600, 1, 8, 8) and splits.train_labels.shape == (25_600, 10)
    assert splits.test_images.shape == (1_280, 1, 8, 8) and splits.test_labels.shape == (1_280, 10)
    assert splits.train_labels.is_floating_point()
    for drawn in (splits.train_images, splits.train_labels):
        assert abs(drawn.mean()) < 4 / drawn.numel() ** 0.5
        assert abs(drawn.var() - 1) < 4 * (2 / drawn.numel()) ** 0.5


def test_the_same_draw_every_time_and_nothing_shared_between_the_splits():
    first, second = PLUGIN.load(CPU), PLUGIN.load(CPU)
    assert first.digest == second.digest
    rows = torch.cat([first.train_images, first.test_images]).flatten(1)
    assert len(rows.unique(dim=0)) == len(rows)


def test_augmentation_changes_nothing():
    splits = PLUGIN.load(CPU)
    batch = splits.train_images[:4]
    assert torch.equal(splits.augment(batch, torch.Generator()), batch)


@pytest.fixture(scope="module")
def splits():
    return datasets.get("cifar_shaped:2000").load(CPU)


def test_sizes_and_shape_are_cifars(splits):
    assert splits.train_images.shape == (2_000, 3, 40, 40) and splits.test_images.shape == (400, 3, 32, 32)
    whole, real = datasets.get("cifar_shaped").card, cifar10.CARD
    assert (whole.train_samples, whole.image_shape, whole.classes) == (50_000, real.image_shape, real.classes)
    assert splits.augment(splits.train_images[:5], torch.Generator()).shape == (5, 3, 32, 32)


def test_every_level_of_every_channel_is_about_as_common(splits):
    mean, std = (
        torch.tensor(values).view(3, 1, 1) for values in (cifar10.PLUGIN.transform.mean, cifar10.PLUGIN.transform.std)
    )
    levels = ((splits.test_images * std + mean) * 255).round().long()
    for channel in levels.unbind(1):
        counts = channel.flatten().bincount(minlength=256).double()
        expected = channel.numel() / 256
        assert ((counts - expected).square() / expected).sum() < 255 + 5 * (2 * 255) ** 0.5  # χ²


def test_it_is_the_same_every_time_and_smaller_ones_are_other_sets(splits):
    assert datasets.get("cifar_shaped:2000").load(CPU, None, 7).digest == splits.digest
    assert datasets.get("cifar_shaped:1000").load(CPU).digest != splits.digest


def test_the_full_number_has_one_name():
    assert datasets.get("cifar_shaped:50000").card.name == datasets.get("cifar_shaped").card.name == "cifar_shaped"
    assert "benchmarks only" in datasets.get("cifar_shaped").card.line


@pytest.mark.parametrize("argument", ["0", "999", "50001", "-5", "many", "1e4", "²"])
def test_another_number_is_refused(argument):
    with pytest.raises(UnknownName, match="unknown number of samples of cifar_shaped .*; known: 1000 to 50000"):
        datasets.get(f"cifar_shaped:{argument}")


@pytest.fixture(scope="module")
def permuted():
    return datasets.get("random_targets:digits").load(CPU, None, 1)


@pytest.fixture(scope="module")
def digits():
    return datasets.get("digits").load(CPU)


@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_are_permuted_within_their_split(permuted, digits, split):
    ours, theirs = (getattr(one, f"{split}_labels") for one in (permuted, digits))
    assert torch.equal(getattr(permuted, f"{split}_images"), getattr(digits, f"{split}_images"))
    assert torch.equal(ours.bincount(), theirs.bincount())
    agreeing = (ours == theirs).float().mean().item()
    assert agreeing < 0.1 + 4 * (0.09 / len(ours)) ** 0.5  # chance and four standard deviations


def test_it_is_once_a_seed(permuted):
    again, other = (datasets.get("random_targets:digits").load(CPU, None, seed) for seed in (1, 2))
    assert torch.equal(again.train_labels, permuted.train_labels) and again.digest == permuted.digest
    assert not torch.equal(other.train_labels, permuted.train_labels) and other.digest != permuted.digest


def test_the_augmentation_is_the_source_s(permuted, digits):
    batches = [one.augment(one.train_images[:9], torch.Generator().manual_seed(0)) for one in (permuted, digits)]
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
    ("name", "text"),
    [
        ("random_targets", "unknown data set of random_targets:NAME ''; known: cifar10, "),
        ("random_targets:random_targets:digits", "unknown data set of random_targets:NAME 'random_targets:digits'"),
        ("random_targets:digit", "unknown data set 'digit' .did you mean 'digits'"),
        ("random_targets:teacher_student:3", "unknown α of teacher_student '3'"),
    ],
)
def test_a_source_that_is_none_is_refused_with_the_choices(name, text):
    with pytest.raises(UnknownName, match=text):
        datasets.get(name)
