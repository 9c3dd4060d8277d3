"""Test samples that are also training samples: images bit by bit, windows of a text at any offset."""

from __future__ import annotations

import random

import pytest
import torch

from fa_registry import datasets
from fa_registry.datasets import _shared_samples
from fa_registry.datasets._shared_samples import SHINGLE, shared_samples
from fa_registry.datasets.base import Splits, unaugmented
from fa_registry.errors import UsageError

LENGTH = 64  # tokens of a window


def splits_of(train: torch.Tensor, test: torch.Tensor, augment=unaugmented) -> Splits:
    labels = torch.zeros(len(train), dtype=torch.int64), torch.zeros(len(test), dtype=torch.int64)
    return Splits(train, labels[0], test, labels[1], augment, "the same digest")


def test_shared_images_are_counted_as_stored_and_as_augmented_and_by_no_digest_of_their_own():
    images = torch.randn(40, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(images, [1] * 4)
    assert shared_samples(splits_of(images[:30], images[30:])) == 0
    assert shared_samples(splits_of(images[:35], images[30:])) == 5
    assert shared_samples(splits_of(images[:35], images[[34, 34, 39]])) == 2
    assert shared_samples(splits_of(padded[:35], images[30:], lambda batch, draw: batch[:, :, 1:-1, 1:-1])) == 5
    assert shared_samples(splits_of(-images[:35], images[30:], lambda batch, draw: -batch)) == 5
    assert shared_samples(splits_of(images[:35] + 1e-6, images[30:])) == 0  # exact copies alone: SECURITY.md


@pytest.mark.parametrize("name", ["digits", "digits_centred", "teacher_student", "lq", "markov_text"])
def test_the_built_in_sets_share_no_sample(name):
    assert shared_samples(datasets.get(name).load(torch.device("cpu"), None, 0)) == 0


def windows(text: bytes, length: int = LENGTH) -> torch.Tensor:
    rows = len(text) // length
    return torch.tensor(list(text[: rows * length])).view(rows, length)


def random_text(count: int, seed: int, letters: int = 26) -> bytes:
    return bytes(random.Random(seed).choices(range(97, 97 + letters), k=count))


def contained(train: torch.Tensor, test: torch.Tensor) -> int:
    """The number of test windows of which every shingle is in the training text, one by one."""
    text = bytes(train.flatten().tolist())
    pieces = [bytes(row.tolist()) for row in test]
    return sum(all(row[start : start + SHINGLE] in text for start in range(len(row) - SHINGLE + 1)) for row in pieces)


OTHER, TEST = random_text(200 * LENGTH, 1), random_text(100 * LENGTH, 2)


def in_reverse(text: bytes) -> bytes:
    return b"".join(text[start : start + LENGTH] for start in range(len(text) - LENGTH, -1, -LENGTH))


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        pytest.param(OTHER, 0, id="honest"),
        pytest.param(OTHER + TEST, 100, id="at the same offset"),
        pytest.param(OTHER + b"." + TEST + OTHER[:63], 100, id="shifted by 1"),
        pytest.param(OTHER + b"." * 17 + TEST + OTHER[:47], 100, id="shifted by 17"),
        pytest.param(b"." * 33 + TEST + OTHER, 100, id="shifted by 33"),
        pytest.param(OTHER + in_reverse(TEST), 100, id="windows in reverse order"),
        pytest.param(OTHER[:7] + TEST[: 50 * LENGTH] + OTHER, 50, id="half of the windows"),
        pytest.param(OTHER[:7] + TEST[: 50 * LENGTH + 63] + OTHER, 50, id="a window without its last token"),
        pytest.param(
            OTHER + b"".join(TEST[start : start + 31] + b"." for start in range(0, 6400, 31)), 0, id="shorter pieces"
        ),
    ],
)
def test_windows_of_a_text_are_found_at_any_offset(train, expected):
    split = splits_of(windows(train), windows(TEST))
    assert shared_samples(split) == contained(split.train_images, split.test_images) == expected


def test_windows_that_occur_by_chance_are_counted_as_a_search_finds_them():
    texts = [
        b"".join(random.Random(seed).choices([b"one word ", b"another longer word ", b"x"], k=4000)) for seed in (1, 2)
    ]
    split = splits_of(windows(texts[0]), windows(texts[1][:20_000]))
    assert 0 < shared_samples(split) == contained(split.train_images, split.test_images) < len(split.test_images)


@pytest.mark.parametrize("length", [SHINGLE, SHINGLE + 1, 257])
def test_windows_of_other_lengths_are_found(length):
    split = splits_of(windows(OTHER[:40] + TEST + OTHER, length), windows(TEST, length))
    assert shared_samples(split) == len(split.test_images)


def test_windows_are_found_across_the_parts_of_a_long_text(monkeypatch):
    monkeypatch.setattr(_shared_samples, "ROWS", 3)
    monkeypatch.setattr(_shared_samples, "PART", 50)
    split = splits_of(windows(b"." * 17 + TEST + OTHER), windows(TEST))
    assert shared_samples(split) == 100


def test_a_text_that_the_augmentation_decodes_is_found():
    stored = windows(b"." * 9 + TEST + OTHER) + 1
    assert shared_samples(splits_of(stored, windows(TEST))) == 0
    assert shared_samples(splits_of(stored, windows(TEST), lambda batch, draw: batch - 1)) == 100


def test_windows_shorter_than_a_shingle_are_compared_as_a_whole():
    short = windows(TEST, SHINGLE - 1)
    assert shared_samples(splits_of(windows(OTHER, SHINGLE - 1), short)) == 0
    assert shared_samples(splits_of(torch.cat([windows(OTHER, SHINGLE - 1), short[:3]]), short)) == 3


def test_a_text_file_of_less_than_a_shingle_is_refused_and_one_that_repeats_itself_is_counted(tmp_path):
    (tmp_path / "short.txt").write_bytes(TEST[: SHINGLE - 1])
    with pytest.raises(UsageError, match="longer file"):
        datasets.get(f"text:{tmp_path / 'short.txt'}")
    (tmp_path / "twice.txt").write_bytes(OTHER[: 5 * LENGTH + 3] + TEST[:640] + OTHER + TEST[:640])
    split = datasets.get(f"text:{tmp_path / 'twice.txt'}").load(torch.device("cpu"))
    assert shared_samples(split) == contained(split.train_images, split.test_images) >= 9


def test_an_augmentation_that_changes_its_batch_leaves_the_samples_unchanged():
    images = torch.randn(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    splits = splits_of(images.clone(), images[:5] + 1, lambda batch, draw: batch.add_(1))
    assert shared_samples(splits) == 5 and torch.equal(splits.train_images, images)
