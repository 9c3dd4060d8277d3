"""Random photographs as torchvision's CIFAR10 hands them out: PIL images, one by one through the published transform."""

from __future__ import annotations

import importlib

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from fa_registry.datasets import cifar10
from fa_registry.datasets._files import torchvision_datasets


class PilImages(Dataset):
    """augmented: cropped and mirrored at random before they are normalised, as images to train on are."""

    def __init__(self, count: int, augmented: bool = True):
        torchvision_datasets()  # mends torchvision's import beside a CPU torch
        transforms = importlib.import_module("torchvision.transforms")
        size, transform = cifar10.CARD.image_shape[1], cifar10.PLUGIN.transform
        self.to_image = importlib.import_module("PIL.Image").fromarray
        moved = [transforms.RandomCrop(size, padding=transform.padding), transforms.RandomHorizontalFlip()]
        self.transform = transforms.Compose(
            [
                *(moved if augmented else ()),
                transforms.ToTensor(),
                transforms.Normalize(transform.mean, transform.std),
            ]
        )
        draw = np.random.default_rng(0)
        self.pixels = draw.integers(256, size=(count, size, size, 3), dtype=np.uint8)
        self.labels = draw.integers(cifar10.CARD.classes, size=count)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.to_image(self.pixels[index])), int(self.labels[index])
