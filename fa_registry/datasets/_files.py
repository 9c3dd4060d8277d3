"""The files of a data set below the data root: their expected paths and the check of their MD5.

Also the data sets that torchvision reads from such files. The one known fault of a torchvision with a CPU torch is repaired
here.
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
    """Return the data root, there or not: the argument, else $FA_REGISTRY_DATA, else `data` here."""
    return (root or Path(os.environ.get(VARIABLE) or DEFAULT)).absolute()


def existing_root(root: Path | None, package: Package | None = None) -> Path:
    """Return `data_root`, which must be a folder.

    If no folder was named, a package's installed files suffice.

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
    """A Debian package that installs the files of a data set.

    Attributes:
        name: for apt-get.
        subfolder: of SYSTEM, the one folder with all the files.
    """

    name: str
    subfolder: str

    @property
    def folder(self) -> Path:
        """Return the folder with the files."""
        return SYSTEM / self.subfolder

    @property
    def advice(self) -> str:
        """Return how to install the package."""
        return f"on Debian and Ubuntu `apt-get install {self.name}` installs the files of this data set"


def candidates(root: Path, source: SourceFile, package: Package | None = None) -> list[tuple[Path, str]]:
    """Return (path, MD5) of every form of the source: below root as published or unpacked, or installed."""
    published = root / source.path
    unpacked = [(published.with_suffix(""), source.unpacked_md5)] if source.unpacked_md5 else []
    installed = [(package.folder / published.name, source.md5)] if package else []
    return [(published, source.md5), *unpacked, *installed]


def is_present(root: Path, source: SourceFile, package: Package | None = None) -> bool:
    """Return whether the source exists in some form, intact or not."""
    return any(path.is_file() for path, _ in candidates(root, source, package))


def verified(root: Path, card: DatasetCard, package: Package | None = None) -> dict[SourceFile, Path]:
    """Return an intact file for every source of the card; raise IntegrityError naming all others."""
    files, problems = inspected(root, card, package)
    if problems:
        raise IntegrityError(refusal(card, problems, mend(card, root, package)))
    return files


def mend(card: DatasetCard, root: Path, package: Package | None) -> str:
    """Return the commands that download or install the files of a data set."""
    fetch = shlex.join(["fa-registry", "data", "fetch", card.name, "--data-root", str(root)])
    return f"`{fetch}` downloads them, or prints where to put which file" + (f"; {package.advice}" if package else "")


def inspected(
    root: Path, card: DatasetCard, package: Package | None = None
) -> tuple[dict[SourceFile, Path], dict[SourceFile, str]]:
    """Return the sources with an intact file each, and the fault of each other source."""
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
            # a broken file is reported rather than a missing one
            path = next((path for path in faults if path.is_file()), root / source.path)
            problems[source] = f"{path}: {faults[path]}"
    return files, problems


def file_fault(path: Path, md5: str, unpacked_md5: str = "") -> str:
    """Return the fault of one file, with the expected and the found value; "" if there is none.

    Args:
        path: of the file.
        md5: of the file as published.
        unpacked_md5: of its content, if it is compressed. Recompressed content is intact if this MD5 fits.
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
    """Return the MD5 of a .gz file's content, "" if the file is no .gz file or is truncated."""
    try:
        with gzip.open(path) as content:
            return _md5(content)
    except (OSError, EOFError, zlib.error):
        return ""


def refusal(card: DatasetCard, problems: Mapping[SourceFile, str], advice: str) -> str:
    """Return a message: one line for the summary, one for each file, and one with the repair."""
    count = f"{len(problems)} of {len(card.files)} files missing or not as published"
    return "\n".join([f"data set {card.name}: {count}", *(f"  - {problem}" for problem in problems.values()), advice])


OPERATORS = ("nms", "qnms")  # torchvision registers these two without checking that they exist
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_datasets() -> ModuleType:
    """Return the module torchvision.datasets, also for a torchvision that was built for another torch.

    Such a torchvision (for example CUDA's with a CPU torch) cannot load its compiled operators. Its import stops at
    `operator torchvision::nms does not exist`, though no data set needs an operator. Only after that failure both operators are
    declared, without code, and the import is repeated; any other failure is raised as it is.

    Raises:
        UsageError: torchvision is not installed.
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
    """Return the package torchvision, for your data and transforms.

    A plain `import torchvision` may fail with a CPU torch; after the first call of this function it works.

    Raises:
        UsageError: torchvision is not installed.
    """
    torchvision_datasets()
    return importlib.import_module("torchvision")


class FileFormat(Protocol):
    """Decoding and download of a data set's files, by torchvision."""

    @property
    def packed(self) -> str:
        """Return the name of an archive that `download` unpacks from the data root; "" if there is none."""

    @property
    def packed_md5(self) -> str: ...

    def decode(self, root: Path, files: Mapping[SourceFile, Path]) -> RawImages:
        """Return the images in the verified files."""

    def download(self, root: Path, sources: tuple[SourceFile, ...]) -> None:
        """Write the sources below root, from network or archive; raise OSError or RuntimeError on failure."""


@dataclass(frozen=True)
class ImageFiles(Dataset):
    """A data set of image files.

    Attributes:
        is_cached: whether decoded images are cached below the data root.
    """

    card: DatasetCard
    format: FileFormat
    transform: Transform = UNCHANGED
    package: Package | None = None
    is_cached: bool = True
    same_for_every_seed = True

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Return normalised splits on `device`.

        Raises:
            UsageError: there is no data root.
            IntegrityError: a file is missing or not as published.
        """
        return self.transform.splits(self.raw(existing_root(root, self.package)), device)

    def raw(self, root: Path, report: Callable[[str], None] = lambda line: None) -> RawImages:
        """Return the decoded images, from the cache if there is one.

        Args:
            report: receives a line before each slow step.
        """

        def decode() -> RawImages:
            report(f"{self.card.name}: checking {len(self.card.files)} files")
            files = verified(root, self.card, self.package)
            report(f"{self.card.name}: decoding")
            return self.format.decode(root, files)

        return cached(root, self.card, decode, self.is_cached)
