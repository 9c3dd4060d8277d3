"""random_targets:NAME: any data set with its labels shuffled, so that images do not predict classes.

A network can only fit it by memorising. The test labels are shuffled too: every metric is measured on test samples, and
with their true labels the gradients would be those of a task that was not trained. Test accuracy is chance by construction.
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
    """A data set with shuffled labels.

    Attributes:
        source: the data set with the images and the labels before they are shuffled.
        name: of the card.
    """

    source: Dataset
    name: str

    @property
    def card(self) -> DatasetCard:
        """Return the source's card, with the changes that the shuffling makes."""
        card = self.source.card
        return dataclasses.replace(
            card,
            name=self.name,
            line=f"{card.name} with its labels permuted, once a seed (`{NAME}:NAME` of any data set)",
            source=f"{card.source}; labels permuted here",
            splits=f"{card.splits}; the labels of each split permuted within it by the run's seed",
        )

    def of(self, argument: str) -> Dataset:
        """Return the shuffled version of the data set `argument`, which may have an argument itself."""
        if not argument or argument.partition(":")[0] == NAME:
            raise UnknownName(f"data set of {NAME}:NAME", argument, set(datasets.CATALOG.names()) - {NAME})
        source = datasets.get(argument)
        return RandomTargets(source, f"{NAME}:{source.card.name}")

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Return the source's splits with the labels of each split permuted within it.

        So the count of every class stays the same. The permutation is drawn on the CPU, so that devices agree.
        """
        splits = self.source.load(device, root, seed)
        draw = generator(seed, STREAM)
        orders = [torch.randperm(len(labels), generator=draw) for labels in (splits.train_labels, splits.test_labels)]
        train, test = (order.to(device) for order in orders)
        return dataclasses.replace(
            splits,
            train_labels=splits.train_labels[train],
            test_labels=splits.test_labels[test],
            digest=tensors_digest(torch.tensor(list(bytes.fromhex(splits.digest))), *orders),
        )


PLUGIN = RandomTargets(digits.PLUGIN, NAME)  # represents the family; `of` returns the sets to train on
