"""mnist: handwritten digits, the data set of the classic papers on feedback alignment.

The published files are gzipped idx files. torchvision reads only unpacked files and checks no digest. Therefore this module first
checks the MD5 of each file, and then unpacks the files into a temporary folder.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fa_registry.datasets._files import ImageFiles, file_fault, torchvision_datasets
from fa_registry.datasets._raw_images import RawImages
from fa_registry.datasets._transform import Transform
from fa_registry.datasets.base import DatasetCard, SourceFile


@dataclass(frozen=True)
class IdxFiles:
    """Decoder and downloader for the idx files of MNIST and Fashion-MNIST.

    Attributes:
        kind: Name of the torchvision class, MNIST or FashionMNIST.
        packed: Always an empty string, because the files are not published in one archive.
        packed_md5: Always an empty string.
    """

    kind: str
    packed: str = ""
    packed_md5: str = ""

    def decode(self, root: Path, files: Mapping[SourceFile, Path]) -> RawImages:
        """Unpack the verified files into a temporary folder and read the images with torchvision."""
        with tempfile.TemporaryDirectory() as folder:
            for source, path in files.items():
                _unpack(path, (Path(folder) / source.path).with_suffix(""))
            parts = []
            for train in (True, False):
                samples = getattr(torchvision_datasets(), self.kind)(folder, train=train)
                parts += [samples.data.unsqueeze(1), samples.targets]  # (samples, 1, height, width), (samples,)
        return RawImages(*parts)

    def download(self, root: Path, sources: tuple[SourceFile, ...]) -> None:
        mirrors = getattr(torchvision_datasets(), self.kind).mirrors
        for source in sources:
            path = root / source.path
            if file_fault(path, source.md5, source.unpacked_md5):
                _first_that_works(mirrors, path, source.md5)


def _first_that_works(mirrors: list[str], path: Path, md5: str) -> None:
    """Download a file from the first mirror that works; raise RuntimeError if all mirrors fail."""
    failures = []
    for mirror in mirrors:
        try:
            torchvision_datasets().utils.download_url(mirror + path.name, path.parent, path.name, md5)
            return
        except (OSError, RuntimeError) as error:
            failures.append(f"{mirror}: {error}")
    raise RuntimeError("; ".join(failures))


def _unpack(packed: Path, target_path: Path) -> None:
    target_path.parent.mkdir(parents=True, exist_ok=True)
    if packed.suffix != ".gz":
        shutil.copyfile(packed, target_path)
        return
    with gzip.open(packed) as source, target_path.open("wb") as target:
        shutil.copyfileobj(source, target)


FOLDER = "MNIST/raw"
CARD = DatasetCard(
    name="mnist",
    line="MNIST, 70,000 grey handwritten digits with 28×28 pixels; needs files",
    source="LeCun, Cortes & Burges, The MNIST Database of Handwritten Digits, 1998; the idx files, read by torchvision",
    licence="the authors state no licence; CC BY-SA 3.0 is often named",
    splits="as published: 60,000 training and 10,000 test images",
    normalisation="pixels / 255, from 0 to 1, as in the classic papers on feedback alignment",
    augmentation="none, as in the classic papers; a flipped digit would not be a digit",
    image_shape=(1, 28, 28),
    classes=10,
    train_samples=60_000,
    sha256="",
    bibtex="""@misc{lecun1998mnist,
  title={The MNIST Database of Handwritten Digits}, year={1998},
  author={LeCun, Yann and Cortes, Corinna and Burges, Christopher J. C.}
}""",
    files=(
        SourceFile(
            f"{FOLDER}/train-images-idx3-ubyte.gz",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "6bbc9ace898e44ae57da46a324031adb",
        ),
        SourceFile(
            f"{FOLDER}/train-labels-idx1-ubyte.gz",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "a25bea736e30d166cdddb491f175f624",
        ),
        SourceFile(
            f"{FOLDER}/t10k-images-idx3-ubyte.gz",
            "9fb629c4189551a2d022fa330f9573f3",
            "2646ac647ad5339dbf082846283269ea",
        ),
        SourceFile(
            f"{FOLDER}/t10k-labels-idx1-ubyte.gz",
            "ec29112dd5afa0611ce80d1b7f02629c",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
)

PLUGIN = ImageFiles(card=CARD, format=IdxFiles("MNIST"), transform=Transform(mean=(0.0,), std=(1.0,)))
