"""The two shapes that are timed: the digits study, and CIFAR-10's (random pixels take as long as real ones)."""

from __future__ import annotations

import torch
from torch import Tensor

from fa_registry import methods
from fa_registry.datasets._crop import random_crop
from fa_registry.datasets.base import DatasetCard, Splits
from fa_registry.records import RunSpec
from fa_registry.seeding import generator
from fa_registry.training.task import Task, build_network, network_shape, prepare, resolved

SEED = 42
EPOCHS = 100
CPU = torch.device("cpu")
PADDING = 4  # CIFAR's usual augmentation: crop 32 out of 40, flip every second image
CIFAR_TRAIN, CIFAR_TEST = 50_000, 10_000
CIFAR_CARD = DatasetCard(
    name="cifar-shaped",
    line="random pixels in the shape of CIFAR-10",
    source="torch.randn",
    licence="none",
    splits="none",
    normalisation="none",
    augmentation="random crop of the padded image and horizontal flip",
    image_shape=(3, 32, 32),
    classes=10,
    train_samples=CIFAR_TRAIN,
    sha256="none",
)


def digits_task(method: str) -> Task:
    """The digits study's own task: 12×12 inputs, 1,437 training samples, D = 256, L = 4."""
    return prepare(_spec(method, "digits"), CPU)


def cifar_task(method: str, train_samples: int, test_samples: int) -> Task:
    """CIFAR's shape, D = 256, L = 4, with as many samples as asked for; training images come padded for `augment`."""
    spec = _spec(method, CIFAR_CARD.name)
    network = build_network(spec, CIFAR_CARD)
    draw = generator(SEED, "data_order")
    side = CIFAR_CARD.image_shape[1] + 2 * PADDING
    splits = Splits(
        train_images=torch.randn(train_samples, 3, side, side, generator=draw),
        train_labels=torch.randint(CIFAR_CARD.classes, (train_samples,), generator=draw),
        test_images=torch.randn(test_samples, *CIFAR_CARD.image_shape, generator=draw),
        test_labels=torch.randint(CIFAR_CARD.classes, (test_samples,), generator=draw),
        augment=crop_and_flip,
        digest="none",
    )
    chosen = methods.CATALOG.get(method)
    shape = network_shape(network, splits.test_images[:1], CIFAR_CARD.classes)
    feedback = chosen.feedback(shape, spec.method_options, generator(SEED, "feedback"))
    return Task(spec, CPU, CIFAR_CARD, splits, network, chosen, feedback)


def crop_and_flip(padded: Tensor, draw: torch.Generator) -> Tensor:
    """(batch, 3, 40, 40) → (batch, 3, 32, 32): a random window of each image, half of them mirrored."""
    images = random_crop(padded, CIFAR_CARD.image_shape[1], draw)
    mirrored = torch.rand(len(images), 1, 1, 1, generator=draw, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(3), images)


def _spec(method: str, dataset: str) -> RunSpec:
    return resolved(RunSpec(method=method, architecture="resmlp", dataset=dataset, seed=SEED, epochs=EPOCHS))
