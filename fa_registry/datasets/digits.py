"""digits: real scans at random places on a canvas; the embedded counterpart of CIFAR's random crop.

Centred 8×8 digits are too easy to tell methods apart: a frozen random network already reaches .97 on them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fa_registry.datasets._crop import random_crop
from fa_registry.datasets.base import Dataset, DatasetCard, Splits, tensors_digest
from fa_registry.errors import IntegrityError

CANVAS = 12
SHIFT = 2  # pixels either way from the centre of the canvas
TRAIN_FRACTION = 0.8
SPLIT_SEED = 0  # of the fixed permutation and of the one fixed draw of test offsets


class Digits(Dataset):
    card = DatasetCard(
        name="digits",
        line="UCI handwritten digits, 1,797 real 8×8 scans, at a random offset (±2 px) on a 12×12 canvas",
        source="scikit-learn's bundled copy of the UCI Optical Recognition of Handwritten Digits test set (Alpaydin & Kaynak 1998)",
        licence="CC BY 4.0 (UCI Machine Learning Repository)",
        splits="80/20 by a fixed permutation: 1,437 train, 360 test",
        normalisation="pixels / 16, then the mean and standard deviation over all pixels of the training canvases",
        augmentation="train: a fresh offset for every sample in every epoch; test: one fixed draw",
        image_shape=(1, CANVAS, CANVAS),
        classes=10,
        train_samples=1437,
        sha256="3152ef2996538b92288af433bb13050ff86f1b19c0c342ed87d149470d398e77",
    )

    def load(self, device: torch.device, root: Path | None = None) -> Splits:
        images, labels = self._source()
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SPLIT_SEED))
        cut = int(TRAIN_FRACTION * len(images))
        padded = nn.functional.pad(images / 16, [2 * SHIFT] * 4)  # 8 + 2·4 = 16 wide: cropping 12 of it shifts by ±2
        canvases = padded[order[:cut], :, SHIFT:-SHIFT, SHIFT:-SHIFT]
        padded = (padded - canvases.mean()) / canvases.std()
        train_images, test_padded = padded[order[:cut]], padded[order[cut:]]
        train_labels, test_labels = labels[order[:cut]], labels[order[cut:]]
        test_images = random_crop(test_padded, CANVAS, torch.Generator().manual_seed(SPLIT_SEED))
        digest = tensors_digest(train_images, train_labels, test_images, test_labels)
        tensors = [tensor.to(device) for tensor in (train_images, train_labels, test_images, test_labels)]
        return Splits(*tensors, augment=place, digest=digest)

    def _source(self) -> tuple[Tensor, Tensor]:
        bunch = load_digits()
        images = torch.from_numpy(bunch.images).float().unsqueeze(1)  # (samples, 1, 8, 8)
        labels = torch.from_numpy(bunch.target).long()
        found = tensors_digest(images, labels)
        if found != self.card.sha256:
            raise IntegrityError(
                f"digits: expected source digest {self.card.sha256}, found {found}; is scikit-learn's copy intact?"
            )
        return images, labels


def place(padded: Tensor, generator: torch.Generator) -> Tensor:
    """Training augmentation: (batch, 1, 16, 16) → (batch, 1, 12, 12), each digit shifted by up to ±2 px."""
    return random_crop(padded, CANVAS, generator)


PLUGIN = Digits()
