"""mnist: handwritten digits, the set of the classic feedback-alignment papers."""

from __future__ import annotations

from fa_registry.datasets._idx_files import IdxFiles
from fa_registry.datasets._image_files import ImageFiles
from fa_registry.datasets._transform import Transform
from fa_registry.datasets.base import DatasetCard, SourceFile

FOLDER = "MNIST/raw"
CARD = DatasetCard(
    name="mnist",
    line="MNIST, 70,000 grey handwritten digits of 28×28 pixels; needs files",
    source="LeCun, Cortes & Burges, The MNIST Database of Handwritten Digits, 1998; the idx files, read by torchvision",
    licence="none stated by its makers; commonly given as CC BY-SA 3.0",
    splits="as published: 60,000 train, 10,000 test",
    normalisation="pixels / 255, 0 to 1, as the classic papers of the field have it",
    augmentation="none: the classic papers have none, and a mirrored digit is none",
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
