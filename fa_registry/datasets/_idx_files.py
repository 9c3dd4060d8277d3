"""MNIST's format: idx files, gzipped. torchvision reads them unpacked and checks no digest, so a verified copy is unpacked for it.

The copy lives in a temporary folder: what lies in the data root is not touched, and what nobody checked is not read.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fa_registry.datasets._files import file_fault
from fa_registry.datasets._raw_images import RawImages
from fa_registry.datasets._torchvision import torchvision_datasets
from fa_registry.datasets.base import SourceFile


@dataclass(frozen=True)
class IdxFiles:
    """kind: torchvision's class, MNIST or FashionMNIST, which is also the name of its folder."""

    kind: str
    packed: str = ""
    packed_md5: str = ""

    def decode(self, root: Path, files: Mapping[SourceFile, Path]) -> RawImages:
        """The images of the verified files, as torchvision reads an unpacked copy of them."""
        with tempfile.TemporaryDirectory() as folder:
            for source, path in files.items():
                _unpack(path, (Path(folder) / source.path).with_suffix(""))
            parts = []
            for train in (True, False):
                read = getattr(torchvision_datasets(), self.kind)(folder, train=train)
                parts += [read.data.unsqueeze(1), read.targets]  # (samples, 1, height, width), (samples,)
        return RawImages(*parts)

    def download(self, root: Path, sources: tuple[SourceFile, ...]) -> None:
        mirrors = getattr(torchvision_datasets(), self.kind).mirrors
        for source in sources:
            path = root / source.path
            if file_fault(path, source.md5):
                _first_that_works(mirrors, path, source.md5)


def _first_that_works(mirrors: list[str], path: Path, md5: str) -> None:
    """Download `path` from the first mirror that has it; raises what every mirror raised, as one RuntimeError."""
    failures = []
    for mirror in mirrors:
        try:
            torchvision_datasets().utils.download_url(mirror + path.name, path.parent, path.name, md5)
            return
        except (OSError, RuntimeError) as error:
            failures.append(f"{mirror}: {error}")
    raise RuntimeError("; ".join(failures))


def _unpack(packed: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if packed.suffix != ".gz":
        shutil.copyfile(packed, to)
        return
    with gzip.open(packed) as source, to.open("wb") as target:
        shutil.copyfileobj(source, target)
