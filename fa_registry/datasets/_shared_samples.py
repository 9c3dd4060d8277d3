"""Count of the test samples that are also training samples.

Images are compared bit by bit, and windows of a text at any offset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from fa_registry.datasets.base import Splits, unaugmented

if TYPE_CHECKING:
    from torch import Tensor

SHARED: WeakKeyDictionary[Splits, int] = WeakKeyDictionary()  # results of shared_samples in this process
ROWS = 8_192  # training samples that are compared at a time
KEY_PIXELS = 64  # evenly spread values of an image that are compared first, because most images differ in these values
SHINGLE = 32  # tokens of a shingle; a power of 2, because `_hashes` doubles the length of its pieces
FACTOR = 0x9E3779B97F4A7C15  # of the polynomial hash: an odd number without a pattern in its bits
PART = 2**16  # shingles that are hashed at a time, so that they stay in the cache of a core
SPARSE = 16  # entries of the first table per shingle, so that 6 % of other shingles need the second, slower search


def shared_samples(splits: Splits) -> int:
    """Count the test samples that are also training samples.

    An image counts if it is bitwise equal to a training image. A window of tokens counts if the training text contains all its
    shingles, see `_shared_windows`. Each training sample is compared twice: without augmentation, and with one random
    augmentation.
    """
    if splits not in SHARED:
        SHARED[splits] = _shared_windows(splits) if _is_text(splits) else _shared_rows(splits)
    return SHARED[splits]


def _is_text(splits: Splits) -> bool:
    """Return whether the samples are windows of at least SHINGLE tokens."""
    parts = (splits.train_images, splits.test_images)
    return all(part.dim() == 2 and not part.is_floating_point() and part.shape[1] >= SHINGLE for part in parts)


def _shared_windows(splits: Splits) -> int:
    """Count the test windows of which the training text contains every shingle.

    A shingle is a piece of SHINGLE tokens, at any offset. The training text is the training windows one after another, so a test
    window that begins in one training window and ends in the next one is found too.

    A text repeats itself, so single shingles prove nothing; whole windows are repeated rarely (docs/decisions/11). In changelogs
    that list the same changes several times, they are repeated often, and a model can learn these windows by heart.

    A text of 100 MB takes seconds of one core, and half a minute if the training text contains the whole test set.
    """
    windows = _tokens(splits.test_images)
    candidates = windows[_occurring(splits, _hashes(windows[:, :SHINGLE])).all(axis=1)]  # few windows in most texts
    return int(_occurring(splits, _hashes(candidates)).all(axis=1).sum()) if len(candidates) else 0


def _occurring(splits: Splits, hashes: np.ndarray) -> np.ndarray:
    """Return which of these hashes belong to a shingle of the training text.

    The result has the shape of `hashes`.
    """
    wanted, places = np.unique(hashes, return_inverse=True)
    is_found, table = np.zeros(len(wanted), dtype=bool), _Table(wanted)
    for shingles in _training_shingles(splits):
        is_found[table.positions(shingles)] = True
    return is_found[places.reshape(hashes.shape)]


class _Table:
    """Sorted hashes, and a table that excludes most other hashes without a search."""

    def __init__(self, wanted: np.ndarray):
        self._wanted = wanted
        bits = max(1, int(SPARSE * len(wanted)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._may_occur = np.zeros(2**bits, dtype=bool)
        self._may_occur[wanted >> self._shift] = True

    def positions(self, hashes: np.ndarray) -> np.ndarray:
        """Return the positions of those `hashes` that are in the table."""
        candidates = np.sort(hashes[self._may_occur[hashes >> self._shift]])  # a search in sorted order is faster
        positions = np.searchsorted(self._wanted, candidates)
        positions[positions == len(self._wanted)] = 0
        return positions[self._wanted[positions] == candidates]


def _training_shingles(splits: Splits) -> Iterator[np.ndarray]:
    """Yield the hashes of all shingles of the training text, in parts.

    The text is read without and with augmentation.
    """
    ends = {}  # of the text before, without and with augmentation
    for batches in _training_batches(splits):
        for kind, batch in enumerate(batches):
            text = np.concatenate([ends.get(kind, np.empty(0, np.uint64)), _tokens(batch).ravel()])
            ends[kind] = text[1 - SHINGLE :]
            for start in range(0, len(text) - SHINGLE + 1, PART):
                yield _hashes(text[start : start + PART + SHINGLE - 1])


def _tokens(windows: Tensor) -> np.ndarray:
    return windows.detach().cpu().numpy().astype(np.uint64)


def _hashes(tokens: np.ndarray) -> np.ndarray:
    """Return the hash Σ_i t_i FACTOR^(SHINGLE − 1 − i) mod 2^64 of every shingle.

    Shingles are pieces of the last axis.
    """
    hashes, length, power = tokens, 1, np.array([FACTOR], dtype=np.uint64)  # an array wraps around without a warning
    while length < SHINGLE:
        hashes = hashes[..., :-length] * power + hashes[..., length:]
        length, power = 2 * length, power * power
    return hashes


def _shared_rows(splits: Splits) -> int:
    """Count the test samples that are bitwise equal to a training sample."""
    test = splits.test_images.flatten(1)
    keys = set(_bytes(_keys(test)))
    shared_digests: set[bytes] = set()
    for batches in _training_batches(splits):
        for rows in (batch.flatten(1) for batch in batches if batch.shape[1:] == splits.test_images.shape[1:]):
            candidate_indices = [index for index, key in enumerate(_bytes(_keys(rows))) if key in keys]
            shared_digests |= {hashlib.sha256(row).digest() for row in _bytes(rows[candidate_indices])}
    if not shared_digests:
        return 0
    return sum(hashlib.sha256(row).digest() in shared_digests for row in _bytes(test))


def _training_batches(splits: Splits) -> Iterator[list[Tensor]]:
    """Yield the training samples in batches, without and with augmentation."""
    import torch  # late, because the cards of data sets are read without torch

    generator = torch.Generator(splits.train_images.device).manual_seed(0)
    for samples in splits.train_images.split(ROWS):
        # an augmentation may change its batch, which in training is a copy of the samples
        yield [samples] if splits.augment is unaugmented else [samples, splits.augment(samples.clone(), generator)]


def _keys(rows: Tensor) -> Tensor:
    return rows[:, :: -(-rows.shape[1] // KEY_PIXELS)]


def _bytes(rows: Tensor) -> Iterator[bytes]:
    return (row.tobytes() for row in rows.detach().cpu().contiguous().numpy())
