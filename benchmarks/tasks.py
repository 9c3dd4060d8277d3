"""The two shapes that are timed: the digits study, and CIFAR-10's (random pixels take as long as real ones)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from fa_registry.datasets import cifar10, cifar_shaped
from fa_registry.datasets._transform import random_crop_and_flip
from fa_registry.datasets.base import Splits
from fa_registry.records import RunSpec
from fa_registry.seeding import generator
from fa_registry.training.run_setup import RunSetup, build_setup, build_setup_from_splits
from fa_registry.training.spec_plugins import with_defaults

SEED = 42
EPOCHS = 100
CPU = torch.device("cpu")
CIFAR_TRAIN, CIFAR_TEST = 50_000, 10_000
CIFAR_CARD = cifar_shaped.PLUGIN.card
PADDING = cifar10.PLUGIN.transform.padding


def digits_task(method: str) -> RunSetup:
    """The digits study's own task: 12×12 inputs, 1,437 training samples, D = 256, L = 4."""
    return build_setup(_spec(method, "digits"), CPU)


def cifar_task(method: str, train_samples: int, test_samples: int, precision: str = "fp32") -> RunSetup:
    """CIFAR's shape, D = 256, L = 4, with as many samples as asked for; training images come padded for `augment`."""
    spec = replace(_spec(method, CIFAR_CARD.name), precision=precision)
    draw = generator(SEED, "data_order")
    side = CIFAR_CARD.image_shape[1] + 2 * PADDING
    splits = Splits(
        train_images=torch.randn(train_samples, 3, side, side, generator=draw),
        train_labels=torch.randint(CIFAR_CARD.classes, (train_samples,), generator=draw),
        test_images=torch.randn(test_samples, *CIFAR_CARD.image_shape, generator=draw),
        test_labels=torch.randint(CIFAR_CARD.classes, (test_samples,), generator=draw),
        augment=partial(random_crop_and_flip, size=CIFAR_CARD.image_shape[1]),
        digest="none",
    )
    return build_setup_from_splits(spec, CPU, CIFAR_CARD, splits)


def _spec(method: str, dataset: str) -> RunSpec:
    return with_defaults(RunSpec(method=method, architecture="resmlp", dataset=dataset, seed=SEED, epochs=EPOCHS))
