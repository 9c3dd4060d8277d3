"""The data command: list data sets and file paths, download and check the files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
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
FORMS = ("source", "or unpacked", "or installed")  # labels of the paths that `candidates` returns, in the same order


def overview(name: str = "", root: Path | None = None) -> list[DataRow]:
    """Return one row per data set, or only the row of `name`.

    A row contains the name and a one-line description of the data set, the number of files, the number of missing files, and
    whether the files are decoded. The default folder `root` is $FA_REGISTRY_DATA, else `data`.
    """
    return [_summary(dataset, dataset_name, data_root(root)) for dataset_name, dataset in _chosen(name).items()]


def places(name: str, root: Path | None = None) -> list[DataRow]:
    """Return one row per path at which the package searches for a file of a data set.

    The arguments are those of `overview`. A row has the data set's name, the kind of the path (e.g. `source` or `decoded`), the
    path, the file's MD5, and whether the file exists.
    """
    folder = data_root(root)
    rows = []
    for dataset_name, dataset in _with_files(name).items():
        for source in dataset.card.files:
            for kind, (path, md5) in zip(FORMS, candidates(folder, source, dataset.package), strict=False):
                rows.append(_place(dataset_name, kind, path, md5))
        if dataset.format.packed:
            path, md5 = folder / dataset.format.packed, dataset.format.packed_md5
            rows.append(_place(dataset_name, "or archive, then fetch", path, md5))
        rows.append(_place(dataset_name, "decoded", cache_path(folder, dataset.card.name), ""))
    return rows


def make_ready(needed: Iterable[Dataset], root: Path | None) -> None:
    """Decode the files of these data sets before several processes read the data sets.

    Raises:
        IntegrityError: Files are missing or were changed; the error lists all of them.
    """
    problems = []
    sources = {dataset.card.name: _source(dataset) for dataset in needed}
    for _, source in sorted(sources.items()):
        try:
            if isinstance(source, ImageFiles):
                source.raw(existing_root(root, source.package), LOG.info)
        except IntegrityError as error:
            problems.append(str(error))
    if problems:
        raise IntegrityError("\n".join(dict.fromkeys(problems)))


def fetch(name: str, root: Path | None = None, report: Report = lambda line: None) -> list[DataRow]:
    """Download the missing files of a data set, decode the files and check them.

    Args:
        root: Folder of the files. The default is $FA_REGISTRY_DATA, else `data`.
        report: Function that receives progress messages.

    Returns:
        The rows of `check`.

    Raises:
        IntegrityError: The download failed. The error lists every missing file with its MD5 and its path.
        UsageError: `name` is empty, or the folder cannot be created.
    """
    if not name:
        raise UsageError(
            f"data fetch: expected the NAME of a data set, one of {', '.join(_with_files(''))}; found none"
        )
    folder = data_root(root)
    for dataset in _with_files(name).values():
        _make(folder)
        if not cache_path(folder, dataset.card.name).is_file():
            _download(dataset, folder, report)
    return check(name, folder, report)


def _make(folder: Path) -> None:
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
        existing_root(folder)
    except OSError as error:  # a parent is a file, or a folder without write access
        raise UsageError(
            f"data root {folder}: the folder cannot be created: {error.strerror}; choose another folder with --data-root"
        ) from error


def check(name: str = "", root: Path | None = None, report: Report = lambda line: None) -> list[DataRow]:
    """Check the files of one data set, or of all data sets that need files, with the arguments of `fetch`.

    There is one row per check: name of the data set, checked item (`what`), whether the check passed (`ok`), and result
    (`found`).
    """
    selected = _chosen(name)
    if name and not _with_files(name):
        return [_attempt(name, "splits", lambda: _counted(selected[name].load(torch.device("cpu"))))]
    files = _with_files(name)
    packages = [dataset.package for dataset in files.values() if dataset.package and dataset.package.folder.is_dir()]
    requested_package = files[name].package if name else None
    folder = existing_root(root, packages[0] if packages else requested_package)
    rows = []
    for dataset_name, dataset in files.items():
        summary = _summary(dataset, dataset_name, folder)
        if name or summary["decoded"] or summary["missing"] < summary["files"]:
            report(f"{dataset_name}: checking {folder}")
            checked = _files_checked(dataset_name, dataset, folder)
            if all(row["ok"] for row in checked) or cache_path(folder, dataset.card.name).is_file():
                images = _attempt(dataset_name, "images", lambda dataset=dataset: _counted(dataset.raw(folder, report)))
            else:
                advice = mend(dataset.card, folder, dataset.package)
                images = _row(dataset_name, "images", False, f"not decoded; {advice}")
            rows += [*checked, images]
    return rows


def state(row: DataRow) -> str:
    """Return a text that describes whether the files of a row of `overview` are ready."""
    if not row["files"]:
        return "needs no files"
    if row["decoded"]:
        return "ready"
    return f"{row['missing']} of {row['files']} files missing" if row["missing"] else "files present, not decoded yet"


def _chosen(name: str) -> dict[str, Dataset]:
    """Return a mapping from name to data set: the data set `name`, or all data sets if `name` is empty.

    If `name` is a data set with random targets, the value is the original data set.
    """
    if not name:
        return datasets.CATALOG.members()
    return {name: _source(datasets.get(name))}


def _source(dataset: Dataset) -> Dataset:
    return dataset.source if isinstance(dataset, RandomTargets) else dataset


def _with_files(name: str) -> dict[str, ImageFiles]:
    return {dataset_name: dataset for dataset_name, dataset in _chosen(name).items() if isinstance(dataset, ImageFiles)}


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
    failure = "the downloaded files differ from the published files"
    try:
        dataset.format.download(root, card.files)
    except (OSError, RuntimeError) as error:  # no network, a missing page, or a broken archive
        failure = f"the download failed: {error}"
    problems = inspected(root, card, dataset.package)[1]
    if problems:
        packed = dataset.format.packed
        archive_text = f", or {packed} (MD5 {dataset.format.packed_md5}) into {root}" if packed else ""
        advice = f"download these files manually to the paths above{archive_text}, then repeat the command"
        raise IntegrityError(refusal(card, problems, f"{failure}\n{advice}"))


def _files_checked(name: str, dataset: ImageFiles, root: Path) -> list[DataRow]:
    """Return one row per source file; a missing file passes if its data are cached."""
    path, decoded = cache_path(root, dataset.card.name), False
    with suppress(IntegrityError):
        decoded = path.is_file() and bool(read_cache(path, dataset.card))
    intact, problems = inspected(root, dataset.card, dataset.package)
    rows = []
    for source in dataset.card.files:
        if source in intact:
            rows.append(_row(name, str(intact[source]), True, "as published"))
        elif decoded and not is_present(root, source, dataset.package):
            rows.append(_row(name, str(root / source.path), True, "missing, but not needed: the data are decoded"))
        else:
            path, fault = problems[source]
            rows.append(_row(name, str(path), False, fault))
    return rows


def _counted(data: Splits | RawImages) -> str:
    return f"{len(data.train_labels):,} training and {len(data.test_labels):,} test samples, digest {data.digest[:12]}"


def _attempt(name: str, item: str, describe: Callable[[], str]) -> DataRow:
    try:
        return _row(name, item, True, describe())
    except RegistryError as error:
        return _row(name, item, False, str(error))


def _row(name: str, item: str, ok: bool, result: str) -> DataRow:
    return {"name": name, "what": item, "ok": ok, "found": result}
