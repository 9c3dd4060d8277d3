"""svhn: photographs of house numbers in streets, cropped to one digit per image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fa_registry.datasets._files import ImageFiles, torchvision_datasets
from fa_registry.datasets._raw_images import RawImages
from fa_registry.datasets.base import DatasetCard, SourceFile

SPLITS = ("train", "test")  # the third split of torchvision's class SVHN, `extra`, is not used
CARD = DatasetCard(
    name="svhn",
    line="Street View House Numbers, 99,289 colour digits of 32×32 pixels; needs files",
    source="Netzer et al., Reading Digits in Natural Images, 2011; the cropped digits as .mat files, read by torchvision",
    licence="non-commercial use only, according to the web page of the data set",
    splits="as published, without the easier split `extra`: 73,257 training and 26,032 test images",
    normalisation="pixels / 255, then the mean and standard deviation of each channel, computed from the training images",
    augmentation="none: a flipped digit would not be a digit, and a shifted crop would show a neighbouring digit",
    image_shape=(3, 32, 32),
    classes=10,
    train_samples=73_257,
    sha256="",
    bibtex="""@inproceedings{netzer2011reading,
  title={Reading Digits in Natural Images with Unsupervised Feature Learning}, year={2011},
  author={Netzer, Yuval and Wang, Tao and Coates, Adam and Bissacco, Alessandro and Wu, Bo and Ng, Andrew Y.},
  booktitle={NIPS Workshop on Deep Learning and Unsupervised Feature Learning}
}""",
    files=(
        SourceFile("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        SourceFile("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    ),
)


class MatFiles:
    """Decoder and downloader for the .mat files of SVHN, which label the digit 0 as 10."""

    packed = packed_md5 = ""

    def decode(self, root: Path, files: Mapping[SourceFile, Path]) -> RawImages:
        """Return the images and labels of both files; torchvision checks the MD5 of each file."""
        kind = _expecting(tuple(files))
        parts = []
        for split in SPLITS:
            samples = kind(str(root), split=split)
            parts += [torch.from_numpy(samples.data).contiguous(), torch.from_numpy(samples.labels)]
        return RawImages(*parts)

    def download(self, root: Path, sources: tuple[SourceFile, ...]) -> None:
        for url, name, md5 in _expecting(sources).split_list.values():
            torchvision_datasets().utils.download_url(url, str(root), name, md5)


def _expecting(sources: tuple[SourceFile, ...]) -> Any:
    """Return a subclass of torchvision's class SVHN that expects the MD5 values of `sources`."""
    published = torchvision_datasets().SVHN
    md5 = {source.path: source.md5 for source in sources}
    split_list = {split: [url, name, md5[name]] for split in SPLITS for url, name, _ in [published.split_list[split]]}
    return type(published.__name__, (published,), {"split_list": split_list})


PLUGIN = ImageFiles(card=CARD, format=MatFiles())
