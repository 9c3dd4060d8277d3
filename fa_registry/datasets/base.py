"""Interface of data sets: cards, samples as tensors on the training device, and augmentation."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class SourceFile:
    """File of a data set, as its authors published it.

    Attributes:
        path: Path below the data root, with / between folders.
        md5: MD5 of the published file.
        unpacked_md5: MD5 of the unpacked content. If this MD5 is set, the unpacked file in the same folder is accepted too.
    """

    path: str
    md5: str
    unpacked_md5: str = ""


@dataclass(frozen=True)
class DatasetCard:
    """Description of a data set.

    Attributes:
        name: Name of the data set.
        line: Description in one line.
        source: Publication of the data, or how the data are generated.
        licence: Licence of the data.
        splits: How the samples are divided into training and test samples.
        normalisation: How pixels are normalised.
        augmentation: How training samples are augmented.
        image_shape: Channels, height and width, or the number of tokens.
        classes: Number of classes, or the number of values of a target.
        train_samples: Number of training samples.
        sha256: Digest of the source arrays after reading. Arrays with another digest raise IntegrityError. Empty for synthetic data
            sets, and for data sets with `files`, because each file has an MD5.
        files: Source files.
        bibtex: BibTeX entry of the publication; empty if there is none.
        version: Version of a built-in data set. The version increases when any number of the data set changes.
        task: Name of the task. If the name is empty, integer labels mean classification and floating-point labels regression.
    """

    name: str
    line: str
    source: str
    licence: str
    splits: str
    normalisation: str
    augmentation: str
    image_shape: tuple[int, ...]
    classes: int
    train_samples: int
    sha256: str
    files: tuple[SourceFile, ...] = ()
    bibtex: str = ""
    version: int = 1
    task: str = ""


@dataclass(frozen=True)
class Splits:
    """Training and test samples of a data set.

    Attributes:
        train_images, test_images: float32 (samples, channels, height, width) on the device.
        train_labels, test_labels: int64 (samples,). If the task has no classes: target values, float32 (samples, classes).
        augment: Function that computes the network's input for a training batch from images and a generator. The function runs on
            the device and does not loop over samples.
        digest: SHA-256 that identifies the tensors. The digest is recorded with every run.
        entropy_rate: Smallest expected loss per token of any model, in nats, or None if it is not known.
        validation_images, validation_labels: Samples of the training data that are not trained on, as inputs of the network and
            their targets, or None. A data set does not set them; the run's recipe does.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    augment: Callable[[Tensor, torch.Generator], Tensor]
    digest: str
    entropy_rate: float | None = None
    validation_images: Tensor | None = None
    validation_labels: Tensor | None = None


class Dataset(abc.ABC):
    """Base class of a data set.

    Attributes:
        card: Description of the data set.
        same_for_every_seed: Whether `load` ignores the seed, so consecutive runs share the loaded samples. If True, the data set
            must be hashable, and the samples must never be modified.
    """

    card: DatasetCard
    same_for_every_seed = False

    @abc.abstractmethod
    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Return the training and test samples on `device`.

        Args:
            root: Folder with the files, for data sets that read files. With None, the default data root is used.
            seed: Seed of the run. Only data that must differ between runs, such as permuted labels, may depend on this seed. All
                other random numbers use a fixed seed of the data set, because runs with different seeds must be comparable.
        """

    def absent(self) -> str:
        """Return the reason why `load` cannot find the samples; empty if no reason is known.

        The method reads no samples, so an empty string does not prove that `load` succeeds.
        """
        return ""


class DatasetFamily(Dataset):
    """Base class of data sets that differ in one argument and are named `name:argument`."""

    @abc.abstractmethod
    def of(self, argument: str) -> Dataset:
        """Return the data set for an argument.

        Args:
            argument: Text after the colon of the name; empty if the name has no colon.

        Raises:
            UnknownName: If the argument is not valid. The message lists the choices.
        """


def tensors_digest(*tensors: Tensor) -> str:
    """Return the SHA-256 of the dtype, the shape and the bytes of the tensors, in their order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def plain_splits(splits: Splits) -> Splits:
    """Return the splits as the class Splits with plain tensors.

    A subclass of Splits or Tensor could compute other values at each use. Usual splits are returned unchanged.
    """
    import torch  # late, because the cards of data sets are read without torch

    fields = {field.name: getattr(splits, field.name) for field in dataclasses.fields(Splits)}
    special = {
        name: value.as_subclass(torch.Tensor)
        for name, value in fields.items()
        if isinstance(value, torch.Tensor) and type(value) is not torch.Tensor
    }
    return splits if type(splits) is Splits and not special else Splits(**{**fields, **special})


def unaugmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the batch unchanged. Data sets without augmentation use this function as `augment`."""
    return images
