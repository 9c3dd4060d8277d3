"""Digests of the samples of a third-party data set.

This package computes the digests, and not the data set.
"""

from __future__ import annotations

from fa_registry.datasets.base import Splits, tensors_digest
from fa_registry.records import RunSpec
from fa_registry.training.code_fingerprint import has_third_party_data

# Name of a convention → field of Splits. The digest of a built-in data set, Splits.digest, already covers these fields.
DIGESTED = {
    "data_train_images": "train_images",
    "data_train_labels": "train_labels",
    "data_test_images": "test_images",
    "data_test_labels": "test_labels",
}


def data_digests(spec: RunSpec, splits: Splits) -> dict[str, str]:
    """Return convention → SHA-256 of the samples; empty for a built-in data set.

    Training calls the function after its last epoch, so samples that changed in the training give another digest.
    """
    if not has_third_party_data(spec):
        return {}
    return {name: tensors_digest(getattr(splits, field)) for name, field in DIGESTED.items()}
