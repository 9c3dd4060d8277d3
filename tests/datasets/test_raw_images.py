"""The cache: written once and whole, and refused when it is not what the files give."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fa_registry.datasets import _raw_images, mnist
from fa_registry.datasets._raw_images import RawImages, cache_path, cached, read_cache
from fa_registry.datasets.base import SourceFile
from fa_registry.errors import IntegrityError, UsageError
from tests.datasets.official_files import pixels

CARD = dataclasses.replace(mnist.CARD, train_samples=12)


@pytest.fixture
def raw():
    train, test = (torch.from_numpy(pixels(12, (1, 28, 28), seed)) for seed in (1, 2))
    labels = torch.arange(12) % 10
    return RawImages(train, labels, test, labels.clone())


def never() -> RawImages:
    raise AssertionError("decoded although a cache is there")


def rewritten(path, change_metadata=lambda metadata: metadata, **parts):
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    save_file(tensors | parts, path, change_metadata(metadata))


def test_it_is_decoded_once_and_read_bit_for_bit(tmp_path, raw):
    first = cached(tmp_path, CARD, lambda: raw)
    again = cached(tmp_path, CARD, never)
    assert first.digest == again.digest == raw.digest
    assert torch.equal(again.train_images, raw.train_images) and again.train_images.dtype == torch.uint8
    assert [path.name for path in (tmp_path / "fa_registry").glob("*.partial")] == []


def test_a_decoding_that_breaks_leaves_no_cache(tmp_path, raw):
    with pytest.raises(AssertionError):
        cached(tmp_path, CARD, never)
    assert not cache_path(tmp_path, "mnist").exists()
    assert cached(tmp_path, CARD, lambda: raw).digest == raw.digest


def test_it_names_the_files_it_was_made_of(tmp_path, raw):
    cached(tmp_path, CARD, lambda: raw)
    other = dataclasses.replace(CARD, files=(SourceFile("MNIST/raw/train-images-idx3-ubyte.gz", "0" * 32),))
    with pytest.raises(IntegrityError, match="expected sources .*0000.*, found .*f68b3c2dcbeaaa9fbdd348bbdeb94873"):
        cached(tmp_path, other, never)


def test_a_changed_pixel_is_seen(tmp_path, raw):
    cached(tmp_path, CARD, lambda: raw)
    path = cache_path(tmp_path, "mnist")
    altered = raw.train_images.clone()
    altered[0, 0, 0, 0] += 1
    rewritten(path, train_images=altered)
    with pytest.raises(IntegrityError, match=f"{path}: expected tensors .*, found {raw.digest}; delete it"):
        read_cache(path, CARD)


@pytest.mark.parametrize("keep", [0, 4, 100, 5_000])
def test_a_torn_cache_is_seen(tmp_path, raw, keep):
    cached(tmp_path, CARD, lambda: raw)
    path = cache_path(tmp_path, "mnist")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(IntegrityError, match=f"{path}: .*found a torn file: .*; delete it, and it is written afresh"):
        cached(tmp_path, CARD, never)


def test_another_layout_is_seen(tmp_path, raw):
    cached(tmp_path, CARD, lambda: raw)
    path = cache_path(tmp_path, "mnist")
    rewritten(path, lambda metadata: {**metadata, "format": "another"})
    with pytest.raises(IntegrityError, match="expected format fa_registry images 1, found another"):
        read_cache(path, CARD)
    save_file({"weights": torch.zeros(3)}, path)
    with pytest.raises(IntegrityError, match="found a torn file"):
        read_cache(path, CARD)


def test_everything_in_which_the_arrays_are_not_the_cards_is_named_at_once(tmp_path, raw):
    wrong = dataclasses.replace(raw, train_images=raw.train_images[:11], test_labels=raw.test_labels - 1)
    card = dataclasses.replace(CARD, image_shape=(1, 32, 32))
    with pytest.raises(IntegrityError) as refused:
        cached(tmp_path, card, lambda: wrong)
    assert [line.strip() for line in str(refused.value).splitlines()[1:]] == [
        "- train: expected one label an image, found 11 images and 12 labels",
        "- train_images: expected shape (1, 32, 32), found (1, 28, 28)",
        "- test_images: expected shape (1, 32, 32), found (1, 28, 28)",
        "- test_labels: expected classes 0 to 9, found -1 to 8",
        "- train: expected 12 images, found 11",
    ]


def test_a_folder_that_may_not_be_written_is_told(tmp_path, raw, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError("read-only")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(UsageError, match=r"mnist\.safetensors: expected to write .* found: read-only"):
        cached(tmp_path, CARD, lambda: raw)


def test_a_cache_that_is_there_is_read_without_writing_anything(tmp_path, raw, monkeypatch):
    cached(tmp_path, CARD, lambda: raw)
    monkeypatch.setattr(_raw_images, "FileLock", None)  # a data root may be read-only from then on
    assert cached(tmp_path, CARD, never).digest == raw.digest
