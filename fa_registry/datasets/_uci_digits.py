"""The UCI digits as scikit-learn ships them, and the one split that every data set made of them uses."""

from __future__ import annotations

import torch
from torch import Tensor

from fa_registry.datasets.base import tensors_digest
from fa_registry.errors import IntegrityError

TRAIN_FRACTION = 0.8
SPLIT_SEED = 0  # of the fixed permutation; what else must be drawn once (test offsets) uses it too
SOURCE = (
    "scikit-learn's bundled copy of the UCI Optical Recognition of Handwritten Digits test set (Alpaydin & Kaynak 1998)"
)
BIBTEX = """@misc{alpaydin1998optical,
  title={Optical Recognition of Handwritten Digits}, author={Alpaydin, E. and Kaynak, C.}, year={1998},
  howpublished={UCI Machine Learning Repository}, doi={10.24432/C50P49}
}"""
LICENCE = "CC BY 4.0 (UCI Machine Learning Repository)"
SPLITS = "80/20 by a fixed permutation: 1,437 train, 360 test"
SHA256 = "3152ef2996538b92288af433bb13050ff86f1b19c0c342ed87d149470d398e77"


def scans(expected: str = SHA256) -> tuple[Tensor, Tensor]:
    """Images (1797, 1, 8, 8) in 0..16 and labels (1797,); IntegrityError when the copy is not the recorded one."""
    from sklearn.datasets import load_digits  # takes longer than all else that reading a card does

    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float().unsqueeze(1)  # (samples, 1, 8, 8)
    labels = torch.from_numpy(bunch.target).long()
    digest = tensors_digest(images, labels)
    if digest != expected:
        raise IntegrityError(
            f"digits: expected source digest {expected}, found {digest}; is scikit-learn's copy intact?"
        )
    return images, labels


def split(count: int) -> tuple[Tensor, Tensor]:
    """Indices of the training and of the test samples."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED))
    return order[: int(TRAIN_FRACTION * count)], order[int(TRAIN_FRACTION * count) :]
