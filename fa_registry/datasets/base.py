"""The contract of a data set: whole splits as tensors on the training device, batched augmentation."""

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
    """A file as its authors publish it.

    Attributes:
        path: below the data root, with /.
        md5: of the file as published.
        unpacked_md5: of its content, if path ends in .gz and the unpacked file in the same folder is accepted too.
    """

    path: str
    md5: str
    unpacked_md5: str = ""


@dataclass(frozen=True)
class DatasetCard:
    """The description of a data set.

    Attributes:
        sha256: digest of the source arrays as this package reads them; other arrays are an integrity error. Empty for synthetic
            sets, which have no source, and for sets that are read from `files`, each identified by its MD5.
        classes: of the labels, or the number of values of a target.
        bibtex: of the publication, if there is one.
        version: of a built-in set; raised whenever one of its numbers changes.
    """

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
    """The training and test samples of a data set.

    Attributes:
        train_images, test_images: float32 (samples, channels, height, width) on the device.
        train_labels, test_labels: int64 (samples,); if the task has no classes, target values, float32 (samples, classes).
        augment: (images, generator) → the network's input for a training batch, on the device, without a loop over samples.
        digest: SHA-256 that identifies these tensors, recorded with every run.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    augment: Callable[[Tensor, torch.Generator], Tensor]
    digest: str


class Dataset(abc.ABC):
    """A data set: its card and the function that loads it.

    Attributes:
        same_for_every_seed: `load` ignores the seed, so that consecutive runs share one result. Such a set can be hashed, and
            its splits are never modified.
    """

    card: DatasetCard
    same_for_every_seed = False

    @abc.abstractmethod
    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Return the splits on `device`.

        Args:
            device: of the tensors.
            root: folder with the files of data sets that need some; None: `data_root` in _files.py.
            seed: of the run. Only a set that belongs to a run, such as permuted labels, may depend on it. Draws that all runs
                share use a fixed seed of the data set, so that runs of several seeds are comparable.
        """


class DatasetFamily(Dataset):
    """Data sets that differ in one argument, named `name:argument`."""

    @abc.abstractmethod
    def of(self, argument: str) -> Dataset:
        """Return the data set for `argument` ("" if none was given); raise UnknownName with the choices."""


def tensors_digest(*tensors: Tensor) -> str:
    """Return the SHA-256 over dtype, shape and bytes of each tensor in order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def unaugmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the batch unchanged: the augmentation of sets that have none."""
    return images


SHARED: WeakKeyDictionary[Splits, int] = WeakKeyDictionary()  # results of shared_samples in this process
ROWS = 8_192  # images that are augmented at a time
KEY_PIXELS = 64  # values of an image that are compared first, evenly spread: most images differ there


def shared_samples(splits: Splits) -> int:
    """Count the test images that are also training images, bit by bit.

    Training images are compared as stored and under one draw of the augmentation.
    """
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
