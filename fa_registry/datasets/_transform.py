"""Preparation of images for a network by normalisation, padding, random crops and random flips."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fa_registry.datasets._raw_images import RawImages
from fa_registry.datasets.base import Splits, unaugmented


def random_crop(images: Tensor, generator: torch.Generator, size: int) -> Tensor:
    """Crop a random window from each image; each position has the same probability.

    Args:
        images: Padded images (batch, channels, height, width).
        generator: Random number generator on the device of the images.
        size: Height and width of the windows in pixels.

    Returns:
        Windows (batch, channels, size, size).
    """
    top, left = _corners(images, size, generator)
    return _windows(images, size, top, left[:, None] + torch.arange(size, device=images.device))


def random_crop_and_flip(images: Tensor, generator: torch.Generator, size: int) -> Tensor:
    """Crop a random window from each image, and flip it left to right with probability ½."""
    top, left = _corners(images, size, generator)
    is_flipped = torch.rand(len(images), 1, generator=generator, device=images.device) < 0.5
    offsets = torch.arange(size, device=images.device)
    return _windows(images, size, top, left[:, None] + torch.where(is_flipped, size - 1 - offsets, offsets))


def _corners(images: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return two tensors (batch,): rows and columns of the upper left corners of the windows."""
    batch, _, height, width = images.shape
    top = torch.randint(height - size + 1, (batch,), generator=generator, device=images.device)
    left = torch.randint(width - size + 1, (batch,), generator=generator, device=images.device)
    return top, left


def _windows(images: Tensor, size: int, top: Tensor, columns: Tensor) -> Tensor:
    """Cut one square window from each image.

    Args:
        images: Images (batch, channels, height, width).
        size: Height and width of the windows in pixels.
        top: First row of each window (batch,).
        columns: Columns of each window in the order in which they are copied (batch, size).

    Returns:
        Windows (batch, channels, size, size).
    """
    batch, channels, _, width = images.shape
    rows = top[:, None] + torch.arange(size, device=images.device)
    pixel_indices = torch.add(columns[:, None, :], rows[:, :, None], alpha=width).view(batch, 1, size * size)
    pixels = images.flatten(2).gather(2, pixel_indices.expand(batch, channels, size * size))
    return pixels.view(batch, channels, size, size)


LEVELS = 256
CHUNK = 1_000  # images normalised at a time


@dataclass(frozen=True)
class Transform:
    """Normalisation and augmentation of images.

    Attributes:
        mean, std: Mean and standard deviation of each channel, for pixels from 0 to 1. If empty, both are computed from the
            training images.
        padding: Width in pixels of a black frame around each training image. In training, a window of the size of the image is
            cropped at random and flipped with probability ½. If the width is 0, there is no augmentation.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    padding: int = 0

    def splits(self, raw: RawImages, device: torch.device) -> Splits:
        """Pad and then normalise the images, and return the training and test samples on `device`.

        Padding comes first as in the published code, so normalisation also changes the black pixels. The CPU computes the
        normalisation by division, as ToTensor and Normalize do. A GPU might multiply by the reciprocal instead. The last bits
        would then depend on the device.
        """
        moments = (self.mean, self.std) if self.mean else channel_moments(raw.train_images)
        mean, std = (torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in moments)
        train = normalised(raw.train_images, mean, std, self.padding)
        test = normalised(raw.test_images, mean, std)
        parts = (train, raw.train_labels, test, raw.test_labels)
        identity = f"{raw.digest} {moments} {self.padding}"
        return Splits(
            *(part.to(device) for part in parts),
            augment=partial(random_crop_and_flip, size=test.shape[-1]) if self.padding else unaugmented,
            digest=hashlib.sha256(identity.encode()).hexdigest(),
        )


UNCHANGED = Transform()


def normalised(images: Tensor, mean: Tensor, std: Tensor, padding: int = 0) -> Tensor:
    """Normalise uint8 images and add a black frame: float32 (pixels / 255 − mean) / std.

    The images are processed in chunks, because a second copy of the data set might not fit in memory.

    Args:
        images: uint8 (samples, channels, height, width).
        mean, std: Mean and standard deviation per channel (channels, 1, 1).
        padding: Width of the frame in pixels.
    """
    samples, channels, height, width = images.shape
    framed = torch.empty(samples, channels, height + 2 * padding, width + 2 * padding)
    rows, columns = slice(padding, padding + height), slice(padding, padding + width)
    for chunk, target in zip(images.split(CHUNK), framed.split(CHUNK), strict=True):
        target.copy_(-mean / std)  # normalised black
        target[:, :, rows, columns] = chunk.float().div_(LEVELS - 1).sub_(mean).div_(std)
    return framed


def channel_moments(images: Tensor) -> tuple[Sequence[float], Sequence[float]]:
    """Return the mean and the standard deviation of each channel, for pixels from 0 to 1.

    Both values are computed from the counts of the 256 pixel values, so they do not depend on the order of summation.

    Args:
        images: uint8 (samples, channels, height, width).
    """
    levels = torch.arange(LEVELS, dtype=torch.float64) / (LEVELS - 1)
    means, deviations = [], []
    for channel in images.unbind(1):
        shares = torch.bincount(channel.flatten(), minlength=LEVELS).double() / channel.numel()  # (256,)
        mean = (shares * levels).sum()
        means.append(mean.item())
        deviations.append((shares * (levels - mean).square()).sum().sqrt().item())
    return tuple(means), tuple(deviations)
