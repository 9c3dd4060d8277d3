"""lq: the linear-quadratic toy task with the loss ½‖C h_L − y‖².

The initial states h_0 and the targets y have a standard normal distribution.
"""

from __future__ import annotations

from pathlib import Path

import torch

from fa_registry.datasets.base import Dataset, DatasetCard, Splits, tensors_digest, unaugmented

TRAIN, TEST = 25_600, 1_280  # 100 steps of 256 an epoch: the published 8,000 steps are 80 epochs
SEED = 0


class LinearQuadratic(Dataset):
    same_for_every_seed = True
    card = DatasetCard(
        name="lq",
        line="initial states h_0 ~ N(0, I) of 64 features, targets y ~ N(0, I) of 10, for the architecture linear_lq",
        source="drawn here from a fixed seed; arXiv 2606.21126 describes the task, D = 64 is published there, all else is not",
        licence="none needed: synthetic",
        splits=f"{TRAIN:,} train, {TEST:,} test, independent draws",
        normalisation="none: standard normal already",
        augmentation="none; the process noise is the architecture's",
        image_shape=(1, 8, 8),
        classes=10,
        train_samples=TRAIN,
        sha256="",
    )

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        draw = torch.Generator().manual_seed(SEED)
        states = torch.randn(TRAIN + TEST, *self.card.image_shape, generator=draw)
        targets = torch.randn(TRAIN + TEST, self.card.classes, generator=draw)
        parts = (states[:TRAIN], targets[:TRAIN], states[TRAIN:], targets[TRAIN:])
        return Splits(*(part.to(device) for part in parts), augment=unaugmented, digest=tensors_digest(*parts))


PLUGIN = LinearQuadratic()
