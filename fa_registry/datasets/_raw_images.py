"""Decoded images as uint8 tensors, and their cache in a safetensors file below the data root.

Decoding needs torchvision and takes seconds. Reading the cache is fast and does not need torchvision. The cache contains the MD5
of the source files and a digest of the tensors. A cache with another MD5 or digest is rejected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fa_registry import jsonio
from fa_registry.datasets.base import DatasetCard, tensors_digest
from fa_registry.errors import IntegrityError, UsageError

LOG = logging.getLogger(__name__)
FOLDER = "fa_registry"  # below the data root
FORMAT = "fa_registry images 1"
PATIENCE = 600.0  # seconds to wait for another process that decodes the images


@dataclass(frozen=True)
class RawImages:
    """Images and labels of a data set before normalisation.

    Attributes:
        train_images, test_images: uint8 (samples, channels, height, width).
        train_labels, test_labels: int64 (samples,).
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def parts(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def digest(self) -> str:
        return tensors_digest(*self.parts.values())


def cache_path(root: Path, name: str) -> Path:
    return root / FOLDER / f"{name}.safetensors"


def cached(root: Path, card: DatasetCard, decode: Callable[[], RawImages]) -> RawImages:
    """Return the images of a data set from the cache, or decode them and write the cache.

    Several processes may call this function at the same time: one process decodes, and the others wait. A cache file is always
    complete, because it is written under a temporary name and then renamed. If the data root is read-only, the images are
    decoded on every call.

    Raises:
        IntegrityError: If the cache or the decoded images do not agree with the card.
    """
    path = cache_path(root, card.name)
    if path.is_file():
        return read_cache(path, card)
    if not root.is_dir() or not os.access(path.parent if path.parent.exists() else root, os.W_OK):
        return _decoded(card, decode)
    try:
        path.parent.mkdir(exist_ok=True)
        with _alone(path):
            return read_cache(path, card) if path.is_file() else _written(path, card, _decoded(card, decode))
    except PermissionError:  # the lock belongs to another user
        return _decoded(card, decode)


def _decoded(card: DatasetCard, decode: Callable[[], RawImages]) -> RawImages:
    raw = decode()
    _check(card, raw, "the source files")
    return raw


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Acquire the lock of a cache file, because only one process may decode the images.

    Raises:
        UsageError: If another process has locked the file for more than PATIENCE seconds.
    """
    lock_path = Path(f"{path}.lock")
    lock = FileLock(lock_path)
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout as error:
        holder = lock_path.read_text(errors="replace")[:200] or "another process"
        raise UsageError(
            f"{lock_path} has been locked by {holder} for {PATIENCE:.0f} seconds; nothing was changed. "
            "Wait until that process ends, or stop that process; then repeat the command"
        ) from error
    try:
        lock_path.write_text(f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        lock.release()


def _written(path: Path, card: DatasetCard, raw: RawImages) -> RawImages:
    """Write the images to their cache; if this fails, log a warning."""
    partial = path.with_suffix(".partial")
    metadata = {"format": FORMAT, "sources": _sources(card), "tensors": raw.digest}
    try:
        partial.write_bytes(save({name: part.contiguous() for name, part in raw.parts.items()}, metadata))
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        LOG.warning(
            "%s: the decoded images of %s cannot be stored: %s; every run will decode the images again",
            path,
            card.name,
            error.strerror,
        )
    return raw


def read_cache(path: Path, card: DatasetCard) -> RawImages:
    """Read the cached images of a data set.

    Raises:
        IntegrityError: If the cache is truncated, or was written from other source files.
    """
    names = [field.name for field in dataclasses.fields(RawImages)]
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            raw = RawImages(**{name: file.get_tensor(name) for name in names})
    except SafetensorError as error:
        raise IntegrityError(_stale(path, "a complete cache file", f"a truncated file: {error}")) from error
    for field, expected in (("format", FORMAT), ("sources", _sources(card)), ("tensors", raw.digest)):
        if metadata.get(field) != expected:
            raise IntegrityError(_stale(path, f"{field} {expected}", str(metadata.get(field))))
    _check(card, raw, str(path))
    return raw


def _sources(card: DatasetCard) -> str:
    return jsonio.canonical({source.path: source.md5 for source in card.files})


def _stale(path: Path, expected: str, actual: str) -> str:
    return f"{path}: expected {expected}, found {actual}; delete this cache file, and the next run creates a new one"


def _check(card: DatasetCard, raw: RawImages, location: str) -> None:
    """Raise IntegrityError with all differences between the arrays and the card."""
    problems = []
    for split in ("train", "test"):
        images, labels = raw.parts[f"{split}_images"], raw.parts[f"{split}_labels"]
        if len(images) != len(labels):
            problems.append(
                f"{split}: expected one label per image, found {len(images)} images and {len(labels)} labels"
            )
        if tuple(images.shape[1:]) != card.image_shape:
            problems.append(f"{split}_images: expected shape {card.image_shape}, found {tuple(images.shape[1:])}")
        if len(labels) and (labels.min() < 0 or labels.max() >= card.classes):
            classes = f"{labels.min()} to {labels.max()}"
            problems.append(f"{split}_labels: expected classes 0 to {card.classes - 1}, found {classes}")
    if len(raw.train_images) != card.train_samples:
        problems.append(f"train: expected {card.train_samples:,} images, found {len(raw.train_images):,}")
    if problems:
        mend = "these files differ from the published files"
        raise IntegrityError(
            "\n".join([f"data set {card.name}, {location}: {mend}", *(f"  - {problem}" for problem in problems)])
        )
