"""digits_centred: the scanned digits without any shift.

The data set is used to calibrate the thresholds of the rules. Backprop fits the training samples completely, so the
reference gradient becomes very small. In this case a small gradient means success and not collapse; edition 2026-12 calls the case
CONVERGED. The data set cannot separate methods, because a network with frozen random blocks is nearly as accurate as a trained
network (docs/calibration.md).
"""

from __future__ import annotations

from pathlib import Path

import torch

from fa_registry.datasets.base import Dataset, DatasetCard, Splits, tensors_digest, unaugmented
from fa_registry.datasets.digits import BIBTEX, LICENCE, SHA256, SOURCE, SPLITS, scans, split


class DigitsCentred(Dataset):
    same_for_every_seed = True
    card = DatasetCard(
        name="digits_centred",
        line="UCI handwritten digits, 1,797 centred scans of 8×8 pixels without shifts; for calibration",
        source=SOURCE,
        licence=LICENCE,
        splits=SPLITS,
        normalisation="pixels / 16, then the mean and standard deviation over all pixels of the training scans",
        augmentation="none",
        image_shape=(1, 8, 8),
        classes=10,
        train_samples=1437,
        sha256=SHA256,
        bibtex=BIBTEX,
    )

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        images, labels = scans(self.card.sha256)
        train, test = split(len(images))
        images = images / 16
        images = (images - images[train].mean()) / images[train].std()
        parts = (images[train], labels[train], images[test], labels[test])
        return Splits(*(part.to(device) for part in parts), augment=unaugmented, digest=tensors_digest(*parts))


PLUGIN = DigitsCentred()
