"""The data verb: which data sets there are, which files they need and where, and whether those are whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from fa_registry import datasets
from fa_registry.datasets._files import (
    ImageFiles,
    candidates,
    data_root,
    existing_root,
    inspected,
    is_present,
    mend,
    refusal,
)
from fa_registry.datasets._raw_images import RawImages, cache_path, read_cache
from fa_registry.datasets.base import Dataset, Splits
from fa_registry.datasets.random_targets import RandomTargets
from fa_registry.errors import IntegrityError, RegistryError, UsageError

LOG = logging.getLogger(__name__)
DataRow = dict[str, Any]
Report = Callable[[str], None]
FORMS = ("source", "or unpacked", "or installed")  # in which a file may lie, as datasets.candidates has them


def overview(name: str = "", root: Path | None = None) -> list[DataRow]:
    """name, line, files (how many it needs), missing (of those), decoded (whether they are needed no more)."""
    return [_summary(dataset, called, data_root(root)) for called, dataset in _chosen(name).items()]


def places(name: str = "", root: Path | None = None) -> list[DataRow]:
    """Every path a data set is looked for at: name, kind, path, md5, present. One of several kinds of a file is enough."""
    folder = data_root(root)
    rows = []
    for called, dataset in _with_files(name).items():
        for source in dataset.card.files:
            for kind, (path, md5) in zip(FORMS, candidates(folder, source, dataset.package), strict=False):
                rows.append(_place(called, kind, path, md5))
        if dataset.format.packed:
            rows.append(
                _place(called, "or archive, then fetch", folder / dataset.format.packed, dataset.format.packed_md5)
            )
        rows.append(_place(called, "decoded", cache_path(folder, dataset.card.name), ""))
    return rows


def make_ready(names: Iterable[str], root: Path | None) -> None:
    """Decode what the data sets of these names need, once, before several processes ask for it; errors as of their `load`."""
    problems = []
    for name in sorted(names):
        for dataset in _with_files(name).values():
            try:
                dataset.raw(existing_root(root, dataset.package), LOG.info)
            except IntegrityError as error:  # the next one's files may be missing too: all are named at once
                problems.append(str(error))
    if problems:
        raise IntegrityError("\n".join(dict.fromkeys(problems)))


def fetch(name: str, root: Path | None = None, report: Report = lambda line: None) -> list[DataRow]:
    """Download what a data set lacks, decode it, and return the rows of `check`.

    Raises IntegrityError naming every file that is missing, its MD5 and its place, when the download fails.
    """
    if not name:
        raise UsageError(f"data fetch: expected a NAME, one of {', '.join(_with_files(''))}")
    folder = data_root(root)
    for dataset in _with_files(name).values():
        _make(folder)
        if not cache_path(folder, dataset.card.name).is_file():
            _download(dataset, folder, report)
    return check(name, folder, report)


def _make(folder: Path) -> None:
    """The folder, unless something is there; UsageError where none can be made, or what is there is none."""
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
        existing_root(folder)
    except OSError as error:  # above it stands a file, or a folder that may not be written to
        raise UsageError(
            f"data root {folder}: cannot be made: {error.strerror}; name another with --data-root"
        ) from error


def check(name: str = "", root: Path | None = None, report: Report = lambda line: None) -> list[DataRow]:
    """One row a check: name, what, ok, found. Without a name: every data set of which there is anything below root."""
    chosen = _chosen(name)
    if name and not _with_files(name):
        return [_attempt(name, "splits", lambda: _counted(chosen[name].load(torch.device("cpu"))))]
    files = _with_files(name)
    packages = [dataset.package for dataset in files.values() if dataset.package and dataset.package.folder.is_dir()]
    asked_for = files[name].package if name else None
    folder = existing_root(root, packages[0] if packages else asked_for)
    rows = []
    for called, dataset in files.items():
        summary = _summary(dataset, called, folder)
        if name or summary["decoded"] or summary["missing"] < summary["files"]:
            report(f"{called}: checking {folder}")
            checked = _files_checked(called, dataset, folder)
            if all(row["ok"] for row in checked) or cache_path(folder, dataset.card.name).is_file():
                images = _attempt(called, "images", lambda dataset=dataset: _counted(dataset.raw(folder, report)))
            else:
                images = _row(called, "images", False, f"not decoded; {mend(dataset.card, folder, dataset.package)}")
            rows += [*checked, images]
    return rows


def state(row: DataRow) -> str:
    """A row of `overview` in words."""
    if not row["files"]:
        return "needs no files"
    if row["decoded"]:
        return "ready"
    return f"{row['missing']} of {row['files']} files missing" if row["missing"] else "files present, not decoded yet"


def _chosen(name: str) -> dict[str, Dataset]:
    """The data set asked for, or every one: by the name it is asked for, one with permuted labels standing for its source."""
    if not name:
        return datasets.CATALOG.members()
    dataset = datasets.get(name)
    return {name: dataset.source if isinstance(dataset, RandomTargets) else dataset}


def _with_files(name: str) -> dict[str, ImageFiles]:
    return {called: dataset for called, dataset in _chosen(name).items() if isinstance(dataset, ImageFiles)}


def _summary(dataset: Dataset, name: str, root: Path) -> DataRow:
    files = dataset.card.files
    package = dataset.package if isinstance(dataset, ImageFiles) else None
    missing = sum(not is_present(root, source, package) for source in files)
    decoded = bool(files) and cache_path(root, dataset.card.name).is_file()
    return {"name": name, "line": dataset.card.line, "files": len(files), "missing": missing, "decoded": decoded}


def _place(name: str, kind: str, path: Path, md5: str) -> DataRow:
    return {"name": name, "kind": kind, "path": str(path), "md5": md5, "present": path.is_file()}


def _download(dataset: ImageFiles, root: Path, report: Report) -> None:
    card = dataset.card
    report(f"{card.name}: checking {len(card.files)} files")
    if not inspected(root, card, dataset.package)[1]:
        return
    report(f"{card.name}: downloading into {root}")
    failure = "the download is not what was published"
    try:
        dataset.format.download(root, card.files)
    except (OSError, RuntimeError) as error:  # no network, no such page, a broken archive: what is missing then matters
        failure = f"the download failed: {error}"
    problems = inspected(root, card, dataset.package)[1]
    if problems:
        packed = dataset.format.packed
        instead = f", or {packed} (MD5 {dataset.format.packed_md5}) into {root}" if packed else ""
        raise IntegrityError(
            refusal(card, problems, f"{failure}\nput these files there by hand{instead}, and run this again")
        )


def _files_checked(name: str, dataset: ImageFiles, root: Path) -> list[DataRow]:
    """A row a source file. One that is not there is in order when its content is decoded already, in a cache that can be read."""
    decoded = _is_cached(dataset, root)
    whole, problems = inspected(root, dataset.card, dataset.package)
    rows = []
    for source in dataset.card.files:
        if source in whole:
            rows.append(_row(name, str(whole[source]), True, "as published"))
        elif decoded and not is_present(root, source, dataset.package):
            rows.append(_row(name, str(root / source.path), True, "not there, and not needed: decoded already"))
        else:
            path, _, fault = problems[source].partition(": ")
            rows.append(_row(name, path, False, fault))
    return rows


def _is_cached(dataset: ImageFiles, root: Path) -> bool:
    path = cache_path(root, dataset.card.name)
    try:
        return path.is_file() and bool(read_cache(path, dataset.card))
    except IntegrityError:
        return False


def _counted(data: Splits | RawImages) -> str:
    return f"{len(data.train_labels):,} train, {len(data.test_labels):,} test, digest {data.digest[:12]}"


def _attempt(name: str, what: str, look: Callable[[], str]) -> DataRow:
    try:
        return _row(name, what, True, look())
    except RegistryError as error:
        return _row(name, what, False, str(error))


def _row(name: str, what: str, ok: bool, found: str) -> DataRow:
    return {"name": name, "what": what, "ok": ok, "found": found}
