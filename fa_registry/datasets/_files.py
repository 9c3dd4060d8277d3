"""Files of a data set below the data root: where they are expected, and whether they are what their makers published.

Then the data sets that are read from such files, through torchvision, whose one known fault beside a CPU torch is mended here.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import os
import shlex
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Protocol

import torch

from fa_registry.datasets._raw_images import RawImages, cached
from fa_registry.datasets._transform import UNCHANGED, Transform
from fa_registry.datasets.base import Dataset, DatasetCard, SourceFile, Splits
from fa_registry.errors import IntegrityError, UsageError

VARIABLE = "FA_REGISTRY_DATA"
DEFAULT = "data"
SYSTEM = Path("/usr/share/datasets")  # where Debian's packages of data sets install


def data_root(root: Path | None) -> Path:
    """The folder to look in, there or not: the argument, else $FA_REGISTRY_DATA, else `data` in the working folder."""
    return (root or Path(os.environ.get(VARIABLE) or DEFAULT)).absolute()


def existing_root(root: Path | None, package: Package | None = None) -> Path:
    """Return `data_root`, which must be a folder. Where none was named, the installed files of a package will do as well.

    Raises:
        UsageError: there is no such folder.
    """
    folder = data_root(root)
    is_default = folder == Path(DEFAULT).absolute()
    if not folder.is_dir() and not (is_default and package and package.folder.is_dir()):
        raise UsageError(
            f"data root {folder}: expected a folder, found {'a file' if folder.exists() else 'nothing'}; "
            f"make it, or name another with --data-root or {VARIABLE}" + (f"; {package.advice}" if package else "")
        )
    return folder


@dataclass(frozen=True)
class Package:
    """A package of Debian's that installs the files of a data set.

    Attributes:
        name: for apt-get.
        subfolder: of SYSTEM, where the files lie side by side.
    """

    name: str
    subfolder: str

    @property
    def folder(self) -> Path:
        """The folder in which the files are."""
        return SYSTEM / self.subfolder

    @property
    def advice(self) -> str:
        """How to install it."""
        return f"on Debian and Ubuntu `apt-get install {self.name}` installs the files of this data set"


def candidates(root: Path, source: SourceFile, package: Package | None = None) -> list[tuple[Path, str]]:
    """Return (path, MD5) of every form in which the source may lie: below root as published or unpacked, or installed."""
    published = root / source.path
    unpacked = [(published.with_suffix(""), source.unpacked_md5)] if source.unpacked_md5 else []
    installed = [(package.folder / published.name, source.md5)] if package else []
    return [(published, source.md5), *unpacked, *installed]


def is_present(root: Path, source: SourceFile, package: Package | None = None) -> bool:
    """Return whether the source is there in some form, intact or not."""
    return any(path.is_file() for path, _ in candidates(root, source, package))


def verified(root: Path, card: DatasetCard, package: Package | None = None) -> dict[SourceFile, Path]:
    """Return every source of the card with an intact file of it.

    Raises:
        IntegrityError: some are missing or altered; one message names them all.
    """
    files, problems = inspected(root, card, package)
    if problems:
        raise IntegrityError(refusal(card, problems, mend(card, root, package)))
    return files


def mend(card: DatasetCard, root: Path, package: Package | None) -> str:
    """Return the commands that bring the files of a data set."""
    fetch = shlex.join(["fa-registry", "data", "fetch", card.name, "--data-root", str(root)])
    return f"`{fetch}` downloads them, or says what to put where" + (f"; {package.advice}" if package else "")


def inspected(
    root: Path, card: DatasetCard, package: Package | None = None
) -> tuple[dict[SourceFile, Path], dict[SourceFile, str]]:
    """Return the sources that are as published, each with its file, and what is wrong with each of the others."""
    files: dict[SourceFile, Path] = {}
    problems: dict[SourceFile, str] = {}
    for source in card.files:
        faults: dict[Path, str] = {}
        for path, md5 in candidates(root, source, package):
            faults[path] = file_fault(path, md5, source.unpacked_md5)
            if not faults[path]:
                files[source] = path
                break
        else:
            # a file that is there but broken is told of before one that is missing
            path = next((path for path in faults if path.is_file()), root / source.path)
            problems[source] = f"{path}: {faults[path]}"
    return files, problems


def file_fault(path: Path, md5: str, unpacked_md5: str = "") -> str:
    """Return what is wrong with one file, "" if nothing: expected and found.

    Args:
        path: of the file.
        md5: of the file as published.
        unpacked_md5: of its content, if it is compressed: the same content that was compressed again is intact.
    """
    if not path.is_file():
        return f"expected MD5 {md5}, found no such file"
    try:
        with path.open("rb") as file:
            found = _md5(file)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found == md5 or (path.suffix == ".gz" and unpacked_md5 and _content_md5(path) == unpacked_md5):
        return ""
    return f"expected MD5 {md5}, found {found}: {path.stat().st_size:,} bytes, truncated or altered"


def _md5(file: BinaryIO) -> str:
    return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _content_md5(path: Path) -> str:
    """Return the MD5 of what a .gz file holds, "" if it is none or is torn."""
    try:
        with gzip.open(path) as content:
            return _md5(content)
    except (OSError, EOFError, zlib.error):
        return ""


def refusal(card: DatasetCard, problems: Mapping[SourceFile, str], advice: str) -> str:
    """One line for the whole, one a file, one on how to mend it."""
    count = f"{len(problems)} of {len(card.files)} files missing or not as published"
    return "\n".join([f"data set {card.name}: {count}", *(f"  - {problem}" for problem in problems.values()), advice])


OPERATORS = ("nms", "qnms")  # torchvision describes these two to torch without asking whether they exist
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_datasets() -> ModuleType:
    """The module torchvision.datasets; UsageError where it is not installed.

    A torchvision whose compiled operators do not load (built for another torch: CUDA's beside a CPU torch) stops at
    `operator torchvision::nms does not exist` while importing, though no data set needs an operator. Only after that very
    failure both are declared, without code, and the import is repeated; any other failure is raised as it is.
    """
    try:
        return importlib.import_module("torchvision.datasets")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise UsageError("torchvision is not installed: pip install torchvision") from error
    except RuntimeError as error:
        if str(error) not in {f"operator torchvision::{name} does not exist" for name in OPERATORS}:
            raise
    for name in OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", SCHEMA)
    return importlib.import_module("torchvision.datasets")


def torchvision() -> ModuleType:
    """The package torchvision, for your own data and transforms: a plain `import torchvision` may fail beside a CPU torch.

    Raises UsageError where it is not installed. After the first call the plain import works too.
    """
    torchvision_datasets()
    return importlib.import_module("torchvision")


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
    """A data set of image files. is_cached: whether decoded images are kept below the data root."""

    card: DatasetCard
    format: FileFormat
    transform: Transform = UNCHANGED
    package: Package | None = None
    is_cached: bool = True
    same_for_every_seed = True

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """UsageError when there is no data root, IntegrityError when a file is missing or not as published."""
        return self.transform.splits(self.raw(existing_root(root, self.package)), device)

    def raw(self, root: Path, report: Callable[[str], None] = lambda line: None) -> RawImages:
        """The decoded images, from the cache once there is one; `report` hears of what takes long."""

        def decode() -> RawImages:
            report(f"{self.card.name}: checking {len(self.card.files)} files")
            files = verified(root, self.card, self.package)
            report(f"{self.card.name}: decoding")
            return self.format.decode(root, files)

        return cached(root, self.card, decode, self.is_cached)
