"""cifar10: 32×32 colour photographs in ten classes, the main data set of the paper.

The Python version of CIFAR consists of pickled batches in one folder. torchvision checks the MD5 of each batch before unpickling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fa_registry.datasets._files import ImageFiles, torchvision_datasets
from fa_registry.datasets._raw_images import RawImages
from fa_registry.datasets._transform import Transform
from fa_registry.datasets.base import DatasetCard, SourceFile

BIBTEX = """@techreport{krizhevsky2009learning,
  title={Learning Multiple Layers of Features from Tiny Images}, author={Krizhevsky, Alex},
  institution={University of Toronto}, year={2009}
}"""


@dataclass(frozen=True)
class CifarBatches:
    """File format of CIFAR-10 and CIFAR-100: pickled batches.

    Attributes:
        kind: Name of the torchvision class, CIFAR10 or CIFAR100.
        packed: File name of the archive that contains the folder of batches.
        packed_md5: MD5 of the archive.
    """

    kind: str
    packed: str
    packed_md5: str

    def decode(self, root: Path, files: Mapping[SourceFile, Path]) -> RawImages:
        """Return the images of the batches, in the order of torchvision's list.

        torchvision checks the MD5 of each batch before unpickling.
        """
        kind = self._expecting(tuple(files))
        parts = []
        for train in (True, False):
            samples = kind(str(root), train=train)
            images = (
                torch.from_numpy(samples.data).permute(0, 3, 1, 2).contiguous()
            )  # (samples, channels, height, width)
            parts += [images, torch.tensor(samples.targets, dtype=torch.int64)]
        return RawImages(*parts)

    def download(self, root: Path, sources: tuple[SourceFile, ...]) -> None:
        published = getattr(torchvision_datasets(), self.kind)
        torchvision_datasets().utils.download_and_extract_archive(
            published.url, str(root), filename=self.packed, md5=self.packed_md5
        )

    def _expecting(self, sources: tuple[SourceFile, ...]) -> Any:
        """Return a subclass of torchvision's class that requires the MD5 values of `sources`."""
        published = getattr(torchvision_datasets(), self.kind)
        md5 = {Path(source.path).name: source.md5 for source in sources}
        attributes = {
            "train_list": [[name, md5[name]] for name, _ in published.train_list],
            "test_list": [[name, md5[name]] for name, _ in published.test_list],
            "meta": {**published.meta, "md5": md5[published.meta["filename"]]},
        }
        return type(published.__name__, (published,), attributes)


FOLDER = "cifar-10-batches-py"
CARD = DatasetCard(
    name="cifar10",
    line="CIFAR-10, 60,000 colour photographs of 32×32 pixels in 10 classes; needs files",
    source="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; the Python version, read by torchvision",
    licence="no licence is stated; the web page of the data set asks for a citation",
    splits="as published: 50,000 training and 10,000 test images",
    normalisation="mean (.4914, .4822, .4465) and standard deviation (.2470, .2435, .2616) of the channels, as in arXiv 2606.21126",
    augmentation="train: frame of 4 black pixels, random 32×32 window, flipped with probability ½; test: none",
    image_shape=(3, 32, 32),
    classes=10,
    train_samples=50_000,
    sha256="",
    bibtex=BIBTEX,
    files=(
        SourceFile(f"{FOLDER}/data_batch_1", "c99cafc152244af753f735de768cd75f"),
        SourceFile(f"{FOLDER}/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        SourceFile(f"{FOLDER}/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        SourceFile(f"{FOLDER}/data_batch_4", "634d18415352ddfa80567beed471001a"),
        SourceFile(f"{FOLDER}/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        SourceFile(f"{FOLDER}/test_batch", "40351d587109b95175f43aff81a1287e"),
        SourceFile(f"{FOLDER}/batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
    ),
)

PLUGIN = ImageFiles(
    card=CARD,
    format=CifarBatches("CIFAR10", "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
    transform=Transform(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616), padding=4),
)
