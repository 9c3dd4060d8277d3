"""skeleton: Gaussian classes around random centres. Replace it with yours."""

from __future__ import annotations

import torch

from fa_registry.datasets.base import Dataset, DatasetCard, Splits, tensors_digest, unaugmented

TRAIN, TEST, CLASSES, SHAPE = 2_560, 512, 4, (1, 4, 4)  # samples, samples, classes, (channels, height, width)
SEED = 0  # of the data: all runs have the same task, so that seeds differ only in the network


class Skeleton(Dataset):
    same_for_every_seed = True  # load ignores the seed
    card = DatasetCard(
        name="skeleton",
        line="synthetic: four Gaussian classes in 16 dimensions",
        source="drawn here from a fixed seed",
        licence="none needed: synthetic",
        splits=f"{TRAIN:,} train, {TEST:,} test, independent draws",
        normalisation="none: unit variance around the centres",
        augmentation="none",
        image_shape=SHAPE,
        classes=CLASSES,
        train_samples=TRAIN,
        sha256="",  # digest of the source arrays; empty for synthetic data
    )

    def load(self, device, root=None, seed=0):
        """Return images float32 (samples, channels, height, width) and labels int64 (samples,) on the device."""
        draw = torch.Generator().manual_seed(SEED)
        centres = 2 * torch.randn(CLASSES, *SHAPE, generator=draw)
        labels = torch.randint(CLASSES, (TRAIN + TEST,), generator=draw)
        images = centres[labels] + torch.randn(TRAIN + TEST, *SHAPE, generator=draw)
        parts = (images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])
        return Splits(*(part.to(device) for part in parts), augment=unaugmented, digest=tensors_digest(*parts))


PLUGIN = Skeleton()
