"""digits: sizes, placement, augmentation, integrity."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from fa_registry.datasets import digits, digits_centred
from fa_registry.datasets.base import tensors_digest
from fa_registry.errors import IntegrityError

CPU = torch.device("cpu")
SEED = 7
STREAMS = 20  # epochs drawn in the placement test


def load_digits():
    """scikit-learn's digits; the import takes half a second, which only a test that needs it pays."""
    from sklearn import datasets

    return datasets.load_digits()


@pytest.fixture(scope="module")
def splits():
    return digits.PLUGIN.load(CPU)


@pytest.fixture(scope="module")
def scans():
    """The source scans in the split's order, and the background value of a normalised canvas."""
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    return torch.from_numpy(load_digits().images).float()[order] / 16


def held(canvases: torch.Tensor, scans: torch.Tensor) -> int:
    """How many canvases hold their whole scan at one of the 25 places, and nothing else."""
    background = canvases.min()
    scale = (canvases.max() - background).item()  # the brightest pixel of any scan is 1
    whole = torch.zeros(len(canvases), dtype=torch.bool)
    for top in range(5):
        for left in range(5):
            expected = torch.zeros(len(canvases), 12, 12)
            expected[:, top : top + 8, left : left + 8] = scans
            whole |= ((canvases[:, 0] - background) / scale - expected).abs().amax(dim=(1, 2)) < 1e-5
    return int(whole.sum())


def test_split_sizes_and_shapes(splits):
    assert splits.train_images.shape == (1437, 1, 16, 16)
    assert splits.test_images.shape == (360, 1, 12, 12)
    assert splits.train_images.dtype == torch.float32
    assert splits.train_labels.dtype == torch.int64
    assert (len(splits.train_labels), len(splits.test_labels)) == (1437, 360)
    assert digits.PLUGIN.card.train_samples == 1437
    assert splits.train_labels.unique().tolist() == list(range(10))


def test_train_and_test_together_are_the_whole_source(splits):
    counts = torch.bincount(torch.cat([splits.train_labels, splits.test_labels]), minlength=10)
    assert counts.tolist() == np.bincount(load_digits().target).tolist()


def test_every_training_canvas_holds_its_whole_digit(splits, scans):
    canvases = splits.augment(splits.train_images, torch.Generator().manual_seed(SEED))
    assert canvases.shape == (1437, 1, 12, 12)
    assert held(canvases, scans[:1437]) == 1437


def test_every_test_canvas_holds_its_whole_digit(splits, scans):
    assert held(splits.test_images, scans[1437:]) == 360


def test_offsets_are_uniform_over_the_25_places(splits):
    """A marker at the digit's own corner shows the true offset, regardless of the digit's empty border."""
    marked = torch.zeros(1437 * STREAMS, 1, 16, 16)
    marked[:, :, 4, 4] = 1
    canvases = splits.augment(marked, torch.Generator().manual_seed(SEED))
    places = canvases.flatten(1).argmax(dim=1)
    rows, columns = places // 12, places % 12
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (0, 4, 0, 4)
    counts = torch.bincount(rows * 5 + columns, minlength=25)
    assert stats.chisquare(counts.numpy()).pvalue > 0.001, f"seed {SEED}: {counts.tolist()}"


def test_augmentation_is_decided_by_the_generator_and_fresh_every_time(splits):
    first, again = (splits.augment(splits.train_images, torch.Generator().manual_seed(SEED)) for _ in range(2))
    assert torch.equal(first, again)
    stream = torch.Generator().manual_seed(SEED)
    epochs = [splits.augment(splits.train_images, stream) for _ in range(2)]
    assert torch.equal(epochs[0], first)
    moved = (epochs[0] != epochs[1]).flatten(1).any(dim=1).float().mean().item()
    assert moved > 0.9  # 24 of 25 move; a digit of which nothing is cut off cannot stay and differ


def test_normalisation_is_of_the_centred_training_canvases(splits):
    canvases = splits.train_images[:, :, 2:-2, 2:-2]
    assert canvases.mean().item() == pytest.approx(0, abs=1e-5)
    assert canvases.std().item() == pytest.approx(1, abs=1e-5)


def test_loading_twice_gives_the_same_bytes_and_leaves_the_global_generator_alone(splits):
    before = torch.get_rng_state()
    again = digits.PLUGIN.load(CPU)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(again.test_images, splits.test_images)
    assert (
        again.digest
        == splits.digest
        == tensors_digest(splits.train_images, splits.train_labels, splits.test_images, splits.test_labels)
    )


@pytest.fixture
def changed(monkeypatch, tmp_path):
    """changed(line, column): scikit-learn's file, with this number one higher."""

    def write(line: int, column: int) -> None:
        file = tmp_path / "datasets" / digits.FILE
        file.parent.mkdir(parents=True)
        numbers = np.loadtxt(Path(digits.find_spec("sklearn").origin).parent / "datasets" / digits.FILE, delimiter=",")
        numbers[line, column] += 1
        np.savetxt(file, numbers, fmt="%d", delimiter=",")
        monkeypatch.setattr(digits, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))

    return write


@pytest.mark.parametrize("column", [20, 64], ids=["a pixel", "a label"])
@pytest.mark.parametrize("dataset", [digits, digits_centred], ids=lambda module: module.__name__)
def test_a_changed_source_is_refused(changed, dataset, column):
    changed(3, column)
    text = f"expected source digest {digits.SHA256}, found .*; check the installation of scikit-learn"
    with pytest.raises(IntegrityError, match=text):
        dataset.PLUGIN.load(CPU)


@pytest.mark.long
def test_the_scans_are_read_without_the_library_that_brings_them():
    code = "import sys; from fa_registry.datasets import digits; digits.scans(); print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.fixture(scope="module")
def splits_digits_centred():
    return digits_centred.PLUGIN.load(CPU)


def test_the_split_is_that_of_digits(splits_digits_centred):
    moved = digits.PLUGIN.load(CPU)
    assert torch.equal(splits_digits_centred.train_labels, moved.train_labels) and torch.equal(
        splits_digits_centred.test_labels, moved.test_labels
    )


def test_an_image_is_the_scan_scaled(splits_digits_centred):
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    scans = torch.from_numpy(load_digits().images).float()[order]
    images = torch.cat([splits_digits_centred.train_images, splits_digits_centred.test_images])[:, 0]
    # in float64: the rounding of 115,008 float32 products differs from processor to processor
    correlation = torch.corrcoef(torch.stack([images.flatten(), scans.flatten()]).double())[0, 1].item()
    assert images.shape == (1797, 8, 8) and correlation == pytest.approx(1, abs=1e-6)


def test_normalisation_is_of_the_training_scans(splits_digits_centred):
    assert splits_digits_centred.train_images.mean().item() == pytest.approx(0, abs=1e-5)
    assert splits_digits_centred.train_images.std().item() == pytest.approx(1, abs=1e-5)
    assert splits_digits_centred.test_images.mean().item() != pytest.approx(0, abs=1e-5)  # not of the test scans


def test_augmentation_draws_nothing(splits_digits_centred):
    stream = torch.Generator().manual_seed(1)
    before = stream.get_state()
    assert (
        splits_digits_centred.augment(splits_digits_centred.train_images, stream) is splits_digits_centred.train_images
    )
    assert torch.equal(stream.get_state(), before)
