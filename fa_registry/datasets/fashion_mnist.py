"""fashion_mnist: pictures of clothes in the format of MNIST, but harder to classify."""

from __future__ import annotations

from fa_registry.datasets._files import ImageFiles, Package
from fa_registry.datasets.base import DatasetCard, SourceFile
from fa_registry.datasets.mnist import IdxFiles

FOLDER = "FashionMNIST/raw"
CARD = DatasetCard(
    name="fashion_mnist",
    line="Fashion-MNIST, 70,000 grey images of clothes with 28×28 pixels in 10 classes; needs files",
    source="Xiao, Rasul & Vollgraf, Fashion-MNIST, arXiv 1708.07747; the idx files, read by torchvision",
    licence="MIT (Zalando SE)",
    splits="as published: 60,000 training and 10,000 test images",
    normalisation="pixels / 255, then the mean and standard deviation of all training pixels, computed when the files are loaded",
    augmentation="none, as for mnist",
    image_shape=(1, 28, 28),
    classes=10,
    train_samples=60_000,
    sha256="",
    files=(
        SourceFile(
            f"{FOLDER}/train-images-idx3-ubyte.gz",
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        ),
        SourceFile(
            f"{FOLDER}/train-labels-idx1-ubyte.gz",
            "25c81989df183df01b3e8a0aad5dffbe",
            "9018921c3c673c538a1fc5bad174d6f9",
        ),
        SourceFile(
            f"{FOLDER}/t10k-images-idx3-ubyte.gz",
            "bef4ecab320f06d8554ea6380940ec79",
            "8181f5470baa50b63fa0f6fddb340f0a",
        ),
        SourceFile(
            f"{FOLDER}/t10k-labels-idx1-ubyte.gz",
            "bb300cfdad3c16e7a12a480ee83cd310",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
)

PACKAGE = Package("dataset-fashion-mnist", "fashion-mnist")
PLUGIN = ImageFiles(card=CARD, format=IdxFiles("FashionMNIST"), package=PACKAGE)
