"""random_targets:NAME: the data set NAME with permuted labels.

The images therefore do not predict the labels. A network can fit this data set only by memorising the training samples. The
test labels are permuted too, because all metrics are measured on test samples. True test labels would give the gradients of
another task. The expected test accuracy is that of random guesses.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch

from fa_registry import datasets
from fa_registry.datasets import digits
from fa_registry.datasets.base import Dataset, DatasetCard, DatasetFamily, Splits, tensors_digest
from fa_registry.errors import UnknownName
from fa_registry.seeding import generator

NAME = "random_targets"
STREAM = "targets"


@dataclass(frozen=True)
class RandomTargets(DatasetFamily):
    """Data set with permuted labels.

    Attributes:
        source: Data set with the original labels.
        name: Name of this data set, such as `random_targets:digits`.
    """

    source: Dataset
    name: str

    @property
    def card(self) -> DatasetCard:
        """Card of the original data set, with texts that mention the permuted labels."""
        card = self.source.card
        return dataclasses.replace(
            card,
            name=self.name,
            line=f"{card.name} with permuted labels, one permutation per seed (`{NAME}:NAME` for any data set NAME)",
            source=f"{card.source}; labels permuted by this package",
            splits=f"{card.splits}; the labels are permuted within each split, with the seed of the run",
        )

    def of(self, argument: str) -> Dataset:
        """Return the data set `argument` with permuted labels.

        Args:
            argument: Name of the original data set, such as `digits`. The name may contain a colon.

        Raises:
            UnknownName: If no such data set exists, or if its labels are already permuted.
        """
        if not argument or argument.partition(":")[0] == NAME:
            raise UnknownName(f"data set of {NAME}:NAME", argument, set(datasets.CATALOG.names()) - {NAME})
        source = datasets.get(argument)
        return RandomTargets(source, f"{NAME}:{source.card.name}")

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Return the samples of the original data set with permuted labels.

        The labels of training and test samples are permuted separately, so the number of samples per class does not change. The
        permutation is computed on the CPU, and therefore does not depend on the device.
        """
        splits = self.source.load(device, root, seed)
        label_generator = generator(seed, STREAM)
        orders = [
            torch.randperm(len(labels), generator=label_generator)
            for labels in (splits.train_labels, splits.test_labels)
        ]
        train, test = (order.to(device) for order in orders)
        return dataclasses.replace(
            splits,
            train_labels=splits.train_labels[train],
            test_labels=splits.test_labels[test],
            digest=tensors_digest(torch.tensor(list(bytes.fromhex(splits.digest))), *orders),
        )


PLUGIN = RandomTargets(digits.PLUGIN, NAME)  # represents the data sets random_targets:NAME, which `of` returns
