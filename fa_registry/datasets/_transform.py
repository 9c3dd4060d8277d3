"""From uint8 images to what a network sees: normalisation, padding, and random crops and flips."""

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
    """Return a random size × size window of every image, each offset equally likely.

    Args:
        images: (batch, channels, height, width), already padded.

    Returns:
        (batch, channels, size, size).
    """
    top, left = _corners(images, size, generator)
    return _windows(images, size, top, left[:, None] + torch.arange(size, device=images.device))


def random_crop_and_flip(images: Tensor, generator: torch.Generator, size: int) -> Tensor:
    """Apply `random_crop`, then mirror every window left to right with probability ½."""
    top, left = _corners(images, size, generator)
    mirrored = torch.rand(len(images), 1, generator=generator, device=images.device) < 0.5
    forth = torch.arange(size, device=images.device)
    return _windows(images, size, top, left[:, None] + torch.where(mirrored, size - 1 - forth, forth))


def _corners(images: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return row and column of each window's upper left corner, (batch,) each."""
    batch, _, height, width = images.shape
    top = torch.randint(height - size + 1, (batch,), generator=generator, device=images.device)
    left = torch.randint(width - size + 1, (batch,), generator=generator, device=images.device)
    return top, left


def _windows(images: Tensor, size: int, top: Tensor, columns: Tensor) -> Tensor:
    """Return the windows that begin in row `top` (batch,) and take these columns (batch, size) in order."""
    batch, channels, _, width = images.shape
    rows = top[:, None] + torch.arange(size, device=images.device)
    places = torch.add(columns[:, None, :], rows[:, :, None], alpha=width).view(batch, 1, size * size)
    pixels = images.flatten(2).gather(2, places.expand(batch, channels, size * size))
    return pixels.view(batch, channels, size, size)


LEVELS = 256
CHUNK = 1_000  # images normalised at a time


@dataclass(frozen=True)
class Transform:
    """Normalisation and augmentation of image data.

    Attributes:
        mean, std: of each channel, of pixels in 0..1; if empty, those of the training images, counted exactly.
        padding: black pixels around every training image. From it a window of the image's size is cropped and mirrored at
            random; 0: no augmentation.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    padding: int = 0

    def splits(self, raw: RawImages, device: torch.device) -> Splits:
        """Return normalised splits on `device`, in the published order: padding first, then normalisation.

        So normalisation also changes the black pixels. All arithmetic is on the CPU, with true divisions one after the other, as
        in ToTensor and Normalize. A GPU may multiply by the reciprocal instead, and the last bits would depend on the device.
        """
        moments = (self.mean, self.std) if self.mean else channel_moments(raw.train_images)
        mean, std = (torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in moments)
        train = normalised(raw.train_images, mean, std, self.padding)
        test = normalised(raw.test_images, mean, std)
        parts = (train, raw.train_labels, test, raw.test_labels)
        how = f"{raw.digest} {moments} {self.padding}"
        return Splits(
            *(part.to(device) for part in parts),
            augment=partial(random_crop_and_flip, size=test.shape[-1]) if self.padding else unaugmented,
            digest=hashlib.sha256(how.encode()).hexdigest(),
        )


UNCHANGED = Transform()


def normalised(images: Tensor, mean: Tensor, std: Tensor, padding: int = 0) -> Tensor:
    """Return float32 (pixels / 255 − mean) / std of uint8 images in a black frame of `padding` pixels.

    The images are processed in chunks, so that memory never contains a second copy of a whole data set.

    Args:
        mean, std: (channels, 1, 1).
    """
    samples, channels, height, width = images.shape
    framed = torch.empty(samples, channels, height + 2 * padding, width + 2 * padding)
    rows, columns = slice(padding, padding + height), slice(padding, padding + width)
    for chunk, target in zip(images.split(CHUNK), framed.split(CHUNK), strict=True):
        target.copy_(-mean / std)  # normalised black
        target[:, :, rows, columns] = chunk.float().div_(LEVELS - 1).sub_(mean).div_(std)
    return framed


def channel_moments(images: Tensor) -> tuple[Sequence[float], Sequence[float]]:
    """Return mean and standard deviation of every channel of uint8 images, in 0..1.

    They are computed from pixel counts, so they do not depend on the order of summation.
    """
    levels = torch.arange(LEVELS, dtype=torch.float64) / (LEVELS - 1)
    means, deviations = [], []
    for channel in images.unbind(1):
        share = torch.bincount(channel.flatten(), minlength=LEVELS).double() / channel.numel()  # (256,)
        mean = (share * levels).sum()
        means.append(mean.item())
        deviations.append((share * (levels - mean).square()).sum().sqrt().item())
    return tuple(means), tuple(deviations)
