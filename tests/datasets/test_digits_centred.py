"""digits_centred: the same scans and split as digits, unmoved; nothing is drawn."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits

from fa_registry.datasets import digits, digits_centred
from fa_registry.errors import IntegrityError

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def splits():
    return digits_centred.PLUGIN.load(CPU)


def test_the_split_is_that_of_digits(splits):
    moved = digits.PLUGIN.load(CPU)
    assert torch.equal(splits.train_labels, moved.train_labels) and torch.equal(splits.test_labels, moved.test_labels)


def test_an_image_is_the_scan_scaled(splits):
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    scans = torch.from_numpy(load_digits().images).float()[order]
    images = torch.cat([splits.train_images, splits.test_images])[:, 0]
    correlation = torch.corrcoef(torch.stack([images.flatten(), scans.flatten()]))[0, 1].item()
    assert images.shape == (1797, 8, 8) and correlation == pytest.approx(1, abs=1e-6)


def test_normalisation_is_of_the_training_scans(splits):
    assert splits.train_images.mean().item() == pytest.approx(0, abs=1e-5)
    assert splits.train_images.std().item() == pytest.approx(1, abs=1e-5)
    assert splits.test_images.mean().item() != pytest.approx(0, abs=1e-5)  # not of the test scans


def test_augmentation_draws_nothing(splits):
    stream = torch.Generator().manual_seed(1)
    before = stream.get_state()
    assert splits.augment(splits.train_images, stream) is splits.train_images
    assert torch.equal(stream.get_state(), before)


def test_a_tampered_source_is_refused(monkeypatch):
    bunch = load_digits()
    bunch.images[0, 0, 0] += 1
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda: bunch)
    with pytest.raises(IntegrityError, match="is scikit-learn's copy intact"):
        digits_centred.PLUGIN.load(CPU)
