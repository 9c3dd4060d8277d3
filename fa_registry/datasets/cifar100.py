"""cifar100: 32×32 colour photographs in 100 classes (the fine labels).

A class of cifar100 has a tenth as many images as a class of cifar10.
"""

from __future__ import annotations

from fa_registry.datasets._files import ImageFiles
from fa_registry.datasets._transform import Transform
from fa_registry.datasets.base import DatasetCard, SourceFile
from fa_registry.datasets.cifar10 import BIBTEX, CifarBatches

FOLDER = "cifar-100-python"
CARD = DatasetCard(
    name="cifar100",
    line="CIFAR-100, 60,000 colour photographs of 32×32 pixels in 100 classes; needs files",
    source="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; the Python version, read by torchvision",
    licence="no licence is stated; the web page of the data set asks for a citation",
    splits="as published: 50,000 training and 10,000 test images",
    normalisation="mean (.5071, .4867, .4408) and standard deviation (.2675, .2565, .2761) of the channels, as in arXiv 2606.21126",
    augmentation="train: frame of 4 black pixels, random 32×32 window, flipped with probability ½; test: none",
    image_shape=(3, 32, 32),
    classes=100,
    train_samples=50_000,
    sha256="",
    bibtex=BIBTEX,
    files=(
        SourceFile(f"{FOLDER}/train", "16019d7e3df5f24257cddd939b257f8d"),
        SourceFile(f"{FOLDER}/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        SourceFile(f"{FOLDER}/meta", "7973b15100ade9c7d40fb424638fde48"),
    ),
)

PLUGIN = ImageFiles(
    card=CARD,
    format=CifarBatches("CIFAR100", "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    transform=Transform(mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761), padding=4),
)
