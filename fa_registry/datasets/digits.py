"""digits: real scans at random places on a canvas; the embedded counterpart of CIFAR's random crop.

Centred 8×8 digits are too easy to tell methods apart: a frozen random network already reaches .97 on them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from fa_registry.datasets._crop import random_crop
from fa_registry.datasets._uci_digits import BIBTEX, LICENCE, SHA256, SOURCE, SPLIT_SEED, SPLITS, scans, split
from fa_registry.datasets.base import Dataset, DatasetCard, Splits, tensors_digest

CANVAS = 12
SHIFT = 2  # pixels either way from the centre of the canvas


class Digits(Dataset):
    same_for_every_seed = True
    card = DatasetCard(
        name="digits",
        line="UCI handwritten digits, 1,797 real 8×8 scans, at a random offset (±2 px) on a 12×12 canvas",
        source=SOURCE,
        licence=LICENCE,
        splits=SPLITS,
        normalisation="pixels / 16, then the mean and standard deviation over all pixels of the training canvases",
        augmentation="train: a fresh offset for every sample in every epoch; test: one fixed draw",
        image_shape=(1, CANVAS, CANVAS),
        classes=10,
        train_samples=1437,
        sha256=SHA256,
        bibtex=BIBTEX,
    )

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Both splits on `device`: padded scans (1437, 1, 16, 16) to be cropped in every epoch, test canvases (360, 1, 12, 12).

        The same whatever root and seed: the split and the test offsets are drawn once, from SPLIT_SEED. Normalised by the mean and
        deviation of the training canvases without an offset. IntegrityError where scikit-learn's copy is another.
        """
        images, labels = scans(self.card.sha256)
        train, test = split(len(images))
        padded = nn.functional.pad(images / 16, [2 * SHIFT] * 4)  # 8 + 2·4 = 16 wide: cropping 12 of it shifts by ±2
        canvases = padded[train, :, SHIFT:-SHIFT, SHIFT:-SHIFT]
        padded = (padded - canvases.mean()) / canvases.std()
        test_images = random_crop(padded[test], CANVAS, torch.Generator().manual_seed(SPLIT_SEED))
        parts = (padded[train], labels[train], test_images, labels[test])
        return Splits(*(part.to(device) for part in parts), augment=place, digest=tensors_digest(*parts))


def place(padded: Tensor, generator: torch.Generator) -> Tensor:
    """Training augmentation: (batch, 1, 16, 16) → (batch, 1, 12, 12), each digit shifted by up to ±2 px."""
    return random_crop(padded, CANVAS, generator)


PLUGIN = Digits()
