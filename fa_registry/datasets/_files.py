"""Files of a data set below the data root: where they are expected, and whether they are what their makers published."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from fa_registry.datasets.base import DatasetCard, SourceFile
from fa_registry.errors import IntegrityError, UsageError

VARIABLE = "FA_REGISTRY_DATA"
DEFAULT = "data"


def data_root(root: Path | None) -> Path:
    """The folder to look in, there or not: the argument, else $FA_REGISTRY_DATA, else `data` in the working folder."""
    return (root or Path(os.environ.get(VARIABLE) or DEFAULT)).absolute()


def existing_root(root: Path | None) -> Path:
    """`data_root`, which must be a folder; UsageError otherwise."""
    folder = data_root(root)
    if not folder.is_dir():
        raise UsageError(
            f"data root {folder}: expected a folder, found {'a file' if folder.exists() else 'nothing'}; "
            f"make it, or name another with --data-root or {VARIABLE}"
        )
    return folder


def candidates(root: Path, source: SourceFile) -> list[tuple[Path, str]]:
    """(path, MD5) of every form in which the source may lie below root: as published, and unpacked."""
    published = root / source.path
    unpacked = [(published.with_suffix(""), source.unpacked_md5)] if source.unpacked_md5 else []
    return [(published, source.md5), *unpacked]


def is_present(root: Path, source: SourceFile) -> bool:
    return any(path.is_file() for path, _ in candidates(root, source))


def verified(root: Path, card: DatasetCard) -> dict[SourceFile, Path]:
    """Every source of the card with the file that has its MD5; one IntegrityError names all that are missing or altered."""
    files, problems = inspected(root, card)
    if problems:
        mend = f"`fa-registry data fetch {card.name} --data-root {root}` downloads them, or says what to put where"
        raise IntegrityError(refusal(card, problems, mend))
    return files


def inspected(root: Path, card: DatasetCard) -> tuple[dict[SourceFile, Path], dict[SourceFile, str]]:
    """The sources that are as published, each with its file, and what is wrong with each of the others."""
    files: dict[SourceFile, Path] = {}
    problems: dict[SourceFile, str] = {}
    for source in card.files:
        faults = {path: file_fault(path, md5) for path, md5 in candidates(root, source)}
        intact = [path for path, fault in faults.items() if not fault]
        if intact:
            files[source] = intact[0]
            continue
        # a file that is there but broken is told of before one that is missing
        path = next((path for path in faults if path.is_file()), root / source.path)
        problems[source] = f"{path}: {faults[path]}"
    return files, problems


def file_fault(path: Path, md5: str) -> str:
    """What is wrong with one file, "" if nothing: expected and found."""
    if not path.is_file():
        return f"expected MD5 {md5}, found no such file"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    size = path.stat().st_size
    return "" if digest == md5 else f"expected MD5 {md5}, found {digest}: {size:,} bytes, truncated or altered"


def refusal(card: DatasetCard, problems: Mapping[SourceFile, str], mend: str) -> str:
    """One line for the whole, one a file, one on how to mend it."""
    count = f"{len(problems)} of {len(card.files)} files missing or not as published"
    return "\n".join([f"data set {card.name}: {count}", *(f"  - {problem}" for problem in problems.values()), mend])
