"""A data set of images read from published files: what cifar10, cifar100, mnist, fashion_mnist and svhn have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from fa_registry.datasets._files import existing_root, verified
from fa_registry.datasets._raw_images import RawImages, cached
from fa_registry.datasets._transform import UNCHANGED, Transform
from fa_registry.datasets.base import Dataset, DatasetCard, SourceFile, Splits


class FileFormat(Protocol):
    """How files are decoded and where they come from, by torchvision."""

    @property
    def packed(self) -> str:
        """Name of an archive that may lie in the data root instead, for `download` to unpack; "" if there is none."""

    @property
    def packed_md5(self) -> str: ...

    def decode(self, root: Path, files: Mapping[SourceFile, Path]) -> RawImages:
        """The images in the verified files `found`."""

    def download(self, root: Path, sources: tuple[SourceFile, ...]) -> None:
        """Put the sources below root, from the network or the archive; OSError or RuntimeError when that fails."""


@dataclass(frozen=True)
class ImageFiles(Dataset):
    card: DatasetCard
    format: FileFormat
    transform: Transform = UNCHANGED
    same_for_every_seed = True

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """UsageError when there is no data root, IntegrityError when a file is missing or not as published."""
        return self.transform.splits(self.raw(existing_root(root)), device)

    def raw(self, root: Path, report: Callable[[str], None] = lambda line: None) -> RawImages:
        """The decoded images, from the cache once there is one; `report` hears of what takes long."""

        def decode() -> RawImages:
            report(f"{self.card.name}: checking {len(self.card.files)} files")
            files = verified(root, self.card)
            report(f"{self.card.name}: decoding")
            return self.format.decode(root, files)

        return cached(root, self.card, decode)
