"""Files of image data sets: paths below the data root, MD5 checks, download and decoding.

The import of torchvision is repaired if torchvision was built for another version of torch.
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
SYSTEM = Path("/usr/share/datasets")  # folder into which Debian's packages install data sets


def data_root(root: Path | None) -> Path:
    """Return the folder for the files of data sets; this folder might not exist yet.

    The folder is the argument, or the value of $FA_REGISTRY_DATA, or `data` in the current folder.
    """
    return (root or Path(os.environ.get(VARIABLE) or DEFAULT)).absolute()


def existing_root(root: Path | None, package: Package | None = None) -> Path:
    """Return the data root, and check that the folder exists.

    Args:
        root: Folder that the user named, or None for the default of `data_root`.
        package: Debian package with the files. If this package is installed, a missing default folder is not an error.

    Raises:
        UsageError: If the folder does not exist.
    """
    folder = data_root(root)
    is_default = folder == Path(DEFAULT).absolute()
    if not folder.is_dir() and not (is_default and package and package.folder.is_dir()):
        found, advice = ("a file", "") if folder.exists() else ("nothing", "create this folder, or ")
        raise UsageError(
            f"data root {folder}: expected a folder, found {found}; "
            f"{advice}select another folder with --data-root or {VARIABLE}" + (f"; {package.advice}" if package else "")
        )
    return folder


@dataclass(frozen=True)
class Package:
    """Debian package that installs the files of a data set.

    Attributes:
        name: Name of the package for apt-get.
        subfolder: Folder below /usr/share/datasets that contains all files.
    """

    name: str
    subfolder: str

    @property
    def folder(self) -> Path:
        """Folder with the installed files."""
        return SYSTEM / self.subfolder

    @property
    def advice(self) -> str:
        """Sentence that describes how to install the package."""
        return f"on Debian and Ubuntu `apt-get install {self.name}` installs the files of this data set"


def candidates(root: Path, source: SourceFile, package: Package | None = None) -> list[tuple[Path, str]]:
    """Return all paths at which a source file may exist, each with the expected MD5.

    These are the paths of the published file and of the unpacked file below the data root, and the path in the Debian package.
    """
    published = root / source.path
    unpacked = [(published.with_suffix(""), source.unpacked_md5)] if source.unpacked_md5 else []
    installed = [(package.folder / published.name, source.md5)] if package else []
    return [(published, source.md5), *unpacked, *installed]


def is_present(root: Path, source: SourceFile, package: Package | None = None) -> bool:
    """Return whether a source file exists at one of its `candidates`.

    The content of the file is not checked.
    """
    return any(path.is_file() for path, _ in candidates(root, source, package))


def verified(root: Path, card: DatasetCard, package: Package | None = None) -> dict[SourceFile, Path]:
    """Return the path of one intact file for each source file of a data set.

    Args:
        package: Debian package that may contain the files.

    Raises:
        IntegrityError: If a file is missing or its MD5 differs. The message lists all such files.
    """
    files, problems = inspected(root, card, package)
    if problems:
        raise IntegrityError(refusal(card, problems, mend(card, root, package)))
    return files


def mend(card: DatasetCard, root: Path, package: Package | None) -> str:
    """Return a sentence with the commands that download or install the files of a data set."""
    fetch = shlex.join(["fa-registry", "data", "fetch", card.name, "--data-root", str(root)])
    return f"`{fetch}` downloads these files, or prints the path of each file" + (
        f"; {package.advice}" if package else ""
    )


def inspected(
    root: Path, card: DatasetCard, package: Package | None = None
) -> tuple[dict[SourceFile, Path], dict[SourceFile, tuple[Path, str]]]:
    """Check all source files of a data set.

    Returns:
        Two mappings: source file → path of an intact copy, and source file → (path, fault) if there is no intact copy.
    """
    files: dict[SourceFile, Path] = {}
    problems: dict[SourceFile, tuple[Path, str]] = {}
    for source in card.files:
        faults: dict[Path, str] = {}
        for path, md5 in candidates(root, source, package):
            faults[path] = file_fault(path, md5, source.unpacked_md5)
            if not faults[path]:
                files[source] = path
                break
        else:
            # if one candidate is broken and others are missing, the broken file is reported
            path = next((path for path in faults if path.is_file()), root / source.path)
            problems[source] = path, faults[path]
    return files, problems


def file_fault(path: Path, md5: str, unpacked_md5: str = "") -> str:
    """Check the MD5 of one file.

    Args:
        md5: MD5 of the published file.
        unpacked_md5: MD5 of the unpacked content if the published file is compressed. A file that was compressed again is valid if
            this MD5 agrees.

    Returns:
        Description of the problem. The description is empty if the file is intact.
    """
    if not path.is_file():
        return f"expected a file with MD5 {md5}, found no file"
    try:
        with path.open("rb") as file:
            actual_md5 = _md5(file)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if actual_md5 == md5 or (path.suffix == ".gz" and unpacked_md5 and _content_md5(path) == unpacked_md5):
        return ""
    return f"expected MD5 {md5}, found {actual_md5}; the file has {path.stat().st_size:,} bytes and is truncated or changed"


def _md5(file: BinaryIO) -> str:
    return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _content_md5(path: Path) -> str:
    """Return the MD5 of the content of a .gz file; empty if the file cannot be unpacked."""
    try:
        with gzip.open(path) as content:
            return _md5(content)
    except (OSError, EOFError, zlib.error):
        return ""


def refusal(card: DatasetCard, problems: Mapping[SourceFile, tuple[Path, str]], advice: str) -> str:
    """Return the error message for missing or changed files of a data set.

    The message has a summary line, one line per file, and a line with the advice.
    """
    count = f"{len(problems)} of {len(card.files)} files are missing or differ from the published files"
    lines = (f"  - {path}: {fault}" for path, fault in problems.values())
    return "\n".join([f"data set {card.name}: {count}", *lines, advice])


OPERATORS = ("nms", "qnms")  # torchvision registers code for these operators and assumes that the operators exist
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_datasets() -> ModuleType:
    """Import and return the module torchvision.datasets.

    A torchvision that was built for another torch, such as a CUDA build with a CPU build of torch, cannot load its compiled
    operators. The import then fails with `operator torchvision::nms does not exist`, although no data set needs an operator. After
    this error the function declares the two missing operators without code and imports the module again.

    Raises:
        UsageError: If torchvision is not installed.
    """
    try:
        return importlib.import_module("torchvision.datasets")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise UsageError("torchvision is not installed; install it with `pip install torchvision`") from error
    except RuntimeError as error:
        if str(error) not in {f"operator torchvision::{name} does not exist" for name in OPERATORS}:
            raise
    for name in OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", SCHEMA)
    return importlib.import_module("torchvision.datasets")


def torchvision() -> ModuleType:
    """Import and return the package torchvision, for use in user-supplied data sets.

    A plain `import torchvision` may fail if torch is a CPU build. After the first call of this function, the plain import works.

    Raises:
        UsageError: If torchvision is not installed.
    """
    torchvision_datasets()
    return importlib.import_module("torchvision")


class FileFormat(Protocol):
    """File format of an image data set: decoding and download with torchvision."""

    @property
    def packed(self) -> str:
        """File name of an archive in the data root that `download` unpacks; empty if there is no archive."""

    @property
    def packed_md5(self) -> str: ...

    def decode(self, root: Path, files: Mapping[SourceFile, Path]) -> RawImages:
        """Return the images and labels in the verified files."""

    def download(self, root: Path, sources: tuple[SourceFile, ...]) -> None:
        """Download the source files, or unpack them from the archive in the data root.

        Raises:
            OSError: If the download fails.
            RuntimeError: If the download fails.
        """


@dataclass(frozen=True)
class ImageFiles(Dataset):
    """Data set that is read from image files.

    Attributes:
        card: Description of the data set.
        format: Decoder of the files.
        transform: Normalisation and augmentation.
        package: Debian package with the files, or None.
    """

    card: DatasetCard
    format: FileFormat
    transform: Transform = UNCHANGED
    package: Package | None = None
    same_for_every_seed = True

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Return the normalised training and test samples.

        Args:
            root: Folder with the files, or None for the default data root.
            seed: Not used.

        Raises:
            UsageError: If the data root does not exist.
            IntegrityError: If a file is missing or differs from the published file.
        """
        return self.transform.splits(self.raw(existing_root(root, self.package)), device)

    def raw(self, root: Path, report: Callable[[str], None] = lambda line: None) -> RawImages:
        """Return the decoded images, from the cache if the cache exists.

        Args:
            report: Function that receives one line of text before each slow step.
        """

        def decode() -> RawImages:
            report(f"{self.card.name}: checking {len(self.card.files)} files")
            files = verified(root, self.card, self.package)
            report(f"{self.card.name}: decoding")
            return self.format.decode(root, files)

        return cached(root, self.card, decode)
