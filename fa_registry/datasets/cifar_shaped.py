"""cifar_shaped: random pixels and labels in the shape of CIFAR-10, for timing a training step.

A network cannot learn anything from these samples. Pixels are padded, cropped, flipped and normalised exactly like those of
cifar10. `cifar_shaped:SAMPLES` is a smaller data set with SAMPLES training images.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fa_registry.datasets import cifar10
from fa_registry.datasets._raw_images import RawImages
from fa_registry.datasets.base import Dataset, DatasetCard, DatasetFamily, Splits
from fa_registry.errors import UnknownName

SHAPE, CLASSES = cifar10.CARD.image_shape, cifar10.CARD.classes
TRAIN = cifar10.CARD.train_samples
PER_TEST = 5  # training images for each test image, as in CIFAR
LEAST = 1_000
SEED = 0


@dataclass(frozen=True)
class CifarShaped(DatasetFamily):
    samples: int = TRAIN
    same_for_every_seed = True

    @property
    def card(self) -> DatasetCard:
        """Card for this number of samples."""
        return DatasetCard(
            name="cifar_shaped" if self.samples == TRAIN else f"cifar_shaped:{self.samples}",
            line=f"random pixels and labels in the shape of CIFAR-10, for benchmarks only: {self.samples:,} for training "
            "(`cifar_shaped:SAMPLES`)",
            source="drawn here from a fixed seed; no accuracy on it means anything",
            licence="none needed: synthetic",
            splits=f"{self.samples:,} train, {self.samples // PER_TEST:,} test, independent draws",
            normalisation=cifar10.CARD.normalisation,
            augmentation=cifar10.CARD.augmentation,
            image_shape=SHAPE,
            classes=CLASSES,
            train_samples=self.samples,
            sha256="",
        )

    def of(self, argument: str) -> Dataset:
        """Return the data set with a given number of training samples.

        Args:
            argument: Number of training samples, from 1000 to 50000, or an empty string for 50000. The number of test samples is a
                fifth of this number.

        Raises:
            UnknownName: If the argument is not such a number.
        """
        if argument and not (argument.isdecimal() and LEAST <= int(argument) <= TRAIN):
            raise UnknownName("number of samples of cifar_shaped", argument, [f"{LEAST} to {TRAIN}"])
        return CifarShaped(int(argument or TRAIN))

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        draw = torch.Generator().manual_seed(SEED)
        train, test = self.samples, self.samples // PER_TEST
        raw = RawImages(_pixels(train, draw), _classes(train, draw), _pixels(test, draw), _classes(test, draw))
        return cifar10.PLUGIN.transform.splits(raw, device)


def _pixels(samples: int, draw: torch.Generator) -> Tensor:
    """Return random pixels, uint8 (samples, *SHAPE); eight pixels come from one 64-bit random number."""
    channels, height, width = SHAPE
    text = torch.randint(-(2**63), 2**63 - 1, (samples, channels, height, width // 8), generator=draw)
    return text.view(torch.uint8)  # (samples, channels, height, width)


def _classes(samples: int, draw: torch.Generator) -> Tensor:
    return torch.randint(CLASSES, (samples,), generator=draw)


PLUGIN = CifarShaped()
