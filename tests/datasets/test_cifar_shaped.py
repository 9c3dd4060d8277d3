"""cifar_shaped: CIFAR's shape, number and transform, and nothing to learn."""

from __future__ import annotations

import pytest
import torch

from fa_registry import datasets
from fa_registry.datasets import cifar10
from fa_registry.errors import UnknownName

CPU = torch.device("cpu")


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
