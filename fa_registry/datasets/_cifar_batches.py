"""CIFAR's python version: pickled batches in one folder. Read by torchvision, which checks their MD5 before it unpickles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fa_registry.datasets._raw_images import RawImages
from fa_registry.datasets._torchvision import torchvision_datasets
from fa_registry.datasets.base import SourceFile

BIBTEX = """@techreport{krizhevsky2009learning,
  title={Learning Multiple Layers of Features from Tiny Images}, author={Krizhevsky, Alex},
  institution={University of Toronto}, year={2009}
}"""


@dataclass(frozen=True)
class CifarBatches:
    """kind: torchvision's class, CIFAR10 or CIFAR100. packed, packed_md5: the archive that holds the folder."""

    kind: str
    packed: str
    packed_md5: str

    def decode(self, root: Path, files: Mapping[SourceFile, Path]) -> RawImages:
        """The images of the batches, in the order of torchvision's list; its check of their MD5 comes before any unpickling."""
        kind = self._expecting(tuple(files))
        parts = []
        for train in (True, False):
            read = kind(str(root), train=train)
            images = torch.from_numpy(read.data).permute(0, 3, 1, 2).contiguous()  # (samples, channels, height, width)
            parts += [images, torch.tensor(read.targets, dtype=torch.int64)]
        return RawImages(*parts)

    def download(self, root: Path, sources: tuple[SourceFile, ...]) -> None:
        published = getattr(torchvision_datasets(), self.kind)
        torchvision_datasets().utils.download_and_extract_archive(
            published.url, str(root), filename=self.packed, md5=self.packed_md5
        )

    def _expecting(self, sources: tuple[SourceFile, ...]) -> Any:
        """torchvision's class, demanding the MD5 of `sources`; its own list says which file holds what."""
        published = getattr(torchvision_datasets(), self.kind)
        md5 = {Path(source.path).name: source.md5 for source in sources}
        demands = {
            "train_list": [[name, md5[name]] for name, _ in published.train_list],
            "test_list": [[name, md5[name]] for name, _ in published.test_list],
            "meta": {**published.meta, "md5": md5[published.meta["filename"]]},
        }
        return type(published.__name__, (published,), demands)
