"""The contract of a data set: whole splits as tensors on the training device, and batched augmentation."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import Tensor


@dataclass(frozen=True)
class SourceFile:
    """A file as its makers publish it. path: below the data root, with /. md5: the published one, of that very file.

    unpacked_md5: of its content, where path ends in .gz and the unpacked file beside it will do as well.
    """

    path: str
    md5: str
    unpacked_md5: str = ""


@dataclass(frozen=True)
class DatasetCard:
    """sha256: digest of the source arrays as this package reads them; loading anything else is an integrity error.

    Empty for synthetic sets, which have no source, and for sets that are read from `files`, each known by its MD5.
    classes: of the labels, or how many values a target has. bibtex: of the publication of a set that has one.
    version: of a set of our own; raised whenever one of its numbers changes."""

    name: str
    line: str
    source: str
    licence: str
    splits: str
    normalisation: str
    augmentation: str
    image_shape: tuple[int, int, int]
    classes: int
    train_samples: int
    sha256: str
    files: tuple[SourceFile, ...] = ()
    bibtex: str = ""
    version: int = 1


@dataclass(frozen=True)
class Splits:
    """images: float32 (samples, channels, height, width) on the device; labels: int64 (samples,), or where the
    task has no classes its target values, float32 (samples, classes).

    `augment(images, generator)` maps a training batch to what the network sees, on the device, without a loop over samples.
    `digest`: SHA-256 that tells these tensors from any others, recorded with every run.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    augment: Callable[[Tensor, torch.Generator], Tensor]
    digest: str


class Dataset(abc.ABC):
    """same_for_every_seed: `load` does not look at the seed, so that runs which follow one another share what it returned.
    Such a set can be hashed; its splits are never written into."""

    card: DatasetCard
    same_for_every_seed = False

    @abc.abstractmethod
    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """The splits on `device`; always called with all three.

        root: where files of data sets that need some are found; None: `data_root` in _files.py says where then.
        seed: the run's. Only a set that belongs to a run, such as permuted labels, may depend on it; what is
        drawn for all runs alike comes from a seed of the set's own, so that runs of several seeds are comparable.
        """


class DatasetFamily(Dataset):
    """Sets that differ in one argument, asked for as `name:argument`."""

    @abc.abstractmethod
    def of(self, argument: str) -> Dataset:
        """The member for `argument`, "" where none was given; UnknownName with the choices. Its card bears the full name."""


def tensors_digest(*tensors: Tensor) -> str:
    """SHA-256 over dtype, shape and bytes of each tensor in order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def unaugmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """The augmentation of sets that have none: the batch as it is."""
    return images


SHARED: WeakKeyDictionary[Splits, int] = WeakKeyDictionary()  # the count of splits that this process has counted
ROWS = 8_192  # images that are augmented at a time
KEY_PIXELS = 64  # values of an image that are compared first, evenly spread: most images differ there


def shared_samples(splits: Splits) -> int:
    """Count the test images that are training images too, bit by bit, as stored or under one draw of the augmentation."""
    if splits not in SHARED:
        test = splits.test_images.flatten(1)
        keys, draw = set(_bytes(_keys(test))), torch.Generator(splits.train_images.device).manual_seed(0)
        found: set[bytes] = set()
        for images in splits.train_images.split(ROWS):
            seen = [images] if splits.augment is unaugmented else [images, splits.augment(images, draw)]
            for rows in (one.flatten(1) for one in seen if one.shape[1:] == splits.test_images.shape[1:]):
                alike = [index for index, key in enumerate(_bytes(_keys(rows))) if key in keys]
                found |= {hashlib.sha256(row).digest() for row in _bytes(rows[alike])}
        SHARED[splits] = sum(hashlib.sha256(row).digest() in found for row in _bytes(test)) if found else 0
    return SHARED[splits]


def _keys(rows: Tensor) -> Tensor:
    return rows[:, :: -(-rows.shape[1] // KEY_PIXELS)]


def _bytes(rows: Tensor) -> Iterator[bytes]:
    return (row.tobytes() for row in rows.detach().cpu().contiguous().numpy())
