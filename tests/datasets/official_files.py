"""Small files in the very formats the data sets are published in, and the data sets that expect them.

A shrunk data set demands the MD5 of the small files through the same table as the real one: no check is left out.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
from pathlib import Path

import numpy as np
from scipy.io import savemat

from fa_registry.datasets._files import ImageFiles

TRAIN, TEST = 20, 6


def pixels(samples: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """uint8 (samples, channels, height, width)."""
    return np.random.default_rng(seed).integers(0, 256, (samples, *shape), dtype=np.uint8)


def classes(samples: int, count: int = 10) -> list[int]:
    return [(3 * index + 1) % count for index in range(samples)]


def shrunk(plugin: ImageFiles, root: Path, train: int = TRAIN) -> ImageFiles:
    """`plugin`, expecting the files that are below root now."""
    files = []
    for source in plugin.card.files:
        packed = (root / source.path).read_bytes()
        unpacked = md5(gzip.decompress(packed)) if source.unpacked_md5 else ""
        files.append(dataclasses.replace(source, md5=md5(packed), unpacked_md5=unpacked))
    card = dataclasses.replace(plugin.card, files=tuple(files), train_samples=train)
    return dataclasses.replace(plugin, card=card, package=None)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def write_cifar10(root: Path, labels: list[int] | None = None) -> None:
    """Five batches of TRAIN / 5 and a test batch. labels: of the first batch, instead of its own."""
    folder = root / "cifar-10-batches-py"
    train, size = pixels(TRAIN, (3, 32, 32), 1), TRAIN // 5
    for index in range(5):
        part = slice(size * index, size * (index + 1))
        own = labels if labels is not None and index == 0 else classes(TRAIN)[part]
        _pickled(folder / f"data_batch_{index + 1}", {"data": train[part].reshape(size, -1), "labels": own})
    _pickled(folder / "test_batch", {"data": pixels(TEST, (3, 32, 32), 2).reshape(TEST, -1), "labels": classes(TEST)})
    _pickled(folder / "batches.meta", {"label_names": list("abcdefghij")})


def write_cifar100(root: Path) -> None:
    folder = root / "cifar-100-python"
    for name, samples, seed in (("train", TRAIN, 1), ("test", TEST, 2)):
        rows = pixels(samples, (3, 32, 32), seed).reshape(samples, -1)
        fine = classes(samples, 100)
        _pickled(folder / name, {"data": rows, "fine_labels": fine, "coarse_labels": [0] * samples})
    _pickled(folder / "meta", {"fine_label_names": [str(index) for index in range(100)]})


def _pickled(path: Path, content: dict) -> None:
    """As Python 2 and its numpy wrote it: protocol 2, and integers where a dtype has booleans today."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2).replace(b"\x89\x88\x87", b"K\x00K\x01\x87"))


def write_idx(root: Path, kind: str, train_labels: int = TRAIN) -> None:
    """kind: MNIST or FashionMNIST. train_labels: how many."""
    for name, samples, labels, seed in (("train", TRAIN, train_labels, 1), ("t10k", TEST, TEST, 2)):
        images = pixels(samples, (28, 28), seed)
        _gzipped(root / kind / "raw" / f"{name}-images-idx3-ubyte.gz", 0x803, images)
        _gzipped(root / kind / "raw" / f"{name}-labels-idx1-ubyte.gz", 0x801, np.array(classes(labels), dtype=np.uint8))


def _gzipped(path: Path, magic: int, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = b"".join(number.to_bytes(4, "big") for number in (magic, *array.shape))
    path.write_bytes(gzip.compress(header + array.tobytes(), mtime=0))


def write_svhn(root: Path) -> None:
    """The digit 0 is label 10 in the file; images are (height, width, channels, samples)."""
    for name, samples, seed in (("train", TRAIN, 1), ("test", TEST, 2)):
        images = pixels(samples, (3, 32, 32), seed).transpose(2, 3, 1, 0)
        labels = np.array([label or 10 for label in classes(samples)], dtype=np.uint8)[:, None]
        savemat(root / f"{name}_32x32.mat", {"X": images, "y": labels})
