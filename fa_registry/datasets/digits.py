"""digits: scanned handwritten digits at random positions on a larger canvas.

The random position is the counterpart of the random crop of CIFAR. Centred 8×8 digits do not separate methods, because a frozen
random network already reaches an accuracy of .97.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fa_registry.datasets._transform import random_crop
from fa_registry.datasets.base import Dataset, DatasetCard, Splits, tensors_digest
from fa_registry.errors import IntegrityError

TRAIN_FRACTION = 0.8
SPLIT_SEED = 0  # seed of the fixed permutation and of the test offsets
SOURCE = (
    "scikit-learn's bundled copy of the UCI Optical Recognition of Handwritten Digits test set (Alpaydin & Kaynak 1998)"
)
BIBTEX = """@misc{alpaydin1998optical,
  title={Optical Recognition of Handwritten Digits}, author={Alpaydin, E. and Kaynak, C.}, year={1998},
  howpublished={UCI Machine Learning Repository}, doi={10.24432/C50P49}
}"""
LICENCE = "CC BY 4.0 (UCI Machine Learning Repository)"
SPLITS = "80/20 with a fixed permutation: 1,437 training and 360 test images"
FILE = "data/digits.csv.gz"  # in the folder of sklearn.datasets: one line per scan, 64 pixels and the label
SHA256 = "3152ef2996538b92288af433bb13050ff86f1b19c0c342ed87d149470d398e77"


def scans(expected: str = SHA256) -> tuple[Tensor, Tensor]:
    """Return the images and the labels that scikit-learn contains.

    Returns:
        Images (1797, 1, 8, 8) with values from 0 to 16, and labels (1797,).

    Raises:
        IntegrityError: If the digest of the arrays differs from `expected`.
    """
    # the import of sklearn.datasets takes longer than an epoch, so its function load_digits is not called
    rows = torch.from_numpy(np.loadtxt(Path(find_spec("sklearn").origin).with_name("datasets") / FILE, delimiter=","))
    images = rows[:, :-1].float().reshape(-1, 1, 8, 8)  # (samples, 1, 8, 8)
    labels = rows[:, -1].long()
    digest = tensors_digest(images, labels)
    if digest != expected:
        raise IntegrityError(
            f"digits: expected source digest {expected}, found {digest}; check the installation of scikit-learn"
        )
    return images, labels


def split(count: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the training samples and of the test samples among `count` samples."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED))
    return order[: int(TRAIN_FRACTION * count)], order[int(TRAIN_FRACTION * count) :]


CANVAS = 12
SHIFT = 2  # largest shift in pixels from the centre of the canvas, in both directions


class Digits(Dataset):
    same_for_every_seed = True
    card = DatasetCard(
        name="digits",
        line="UCI handwritten digits, 1,797 scans of 8×8 pixels at a random offset (±2 pixels) on a 12×12 canvas",
        source=SOURCE,
        licence=LICENCE,
        splits=SPLITS,
        normalisation="pixels / 16, then the mean and standard deviation over all pixels of the training canvases",
        augmentation="train: a new random offset for every sample in every epoch; test: random offsets from a fixed seed",
        image_shape=(1, CANVAS, CANVAS),
        classes=10,
        train_samples=1437,
        sha256=SHA256,
        bibtex=BIBTEX,
    )

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Return the padded training scans and the test canvases on `device`.

        The shapes are (1437, 1, 16, 16) for training and (360, 1, 12, 12) for the test. In training, a 12×12 window is cropped from
        each scan in every epoch. Root and seed have no effect, because the split and the test offsets use the fixed SPLIT_SEED. The
        images are normalised by the mean and standard deviation of the centred training canvases.

        Raises:
            IntegrityError: If the digits in scikit-learn differ from the recorded digest.
        """
        images, labels = scans(self.card.sha256)
        train, test = split(len(images))
        padded = nn.functional.pad(
            images / 16, [2 * SHIFT] * 4
        )  # 8 + 2·4 = 16 wide: a window of 12 shifts the digit by ±2
        canvases = padded[train, :, SHIFT:-SHIFT, SHIFT:-SHIFT]
        padded = (padded - canvases.mean()) / canvases.std()
        test_images = random_crop(padded[test], torch.Generator().manual_seed(SPLIT_SEED), CANVAS)
        parts = (padded[train], labels[train], test_images, labels[test])
        return Splits(*(part.to(device) for part in parts), augment=place, digest=tensors_digest(*parts))


def place(padded: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each digit by up to ±2 pixels, in the same way as the augmentation in training does.

    Args:
        padded: Padded scans (batch, 1, 16, 16).

    Returns:
        Canvases (batch, 1, 12, 12).
    """
    return random_crop(padded, generator, CANVAS)


PLUGIN = Digits()
