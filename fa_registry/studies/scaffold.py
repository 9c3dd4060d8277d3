"""The command `new`: create a package with a plug-in and its test, or create a study.toml."""

from __future__ import annotations

import keyword
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fa_registry import architectures, bundled_files, datasets, diagnostics, methods
from fa_registry.errors import InvalidFields, UsageError, unknown_name_text
from fa_registry.process_ownership import try_writing
from fa_registry.studies import study

FOLDER = bundled_files.templates() / "new"
FAMILIES = {  # kind of skeleton → plug-in kind, catalog of existing names
    "method": ("methods", methods.CATALOG),
    "architecture": ("architectures", architectures.CATALOG),
    "dataset": ("datasets", datasets.CATALOG),
    "diagnostic": ("diagnostics", diagnostics.CATALOG),
}
KINDS = (*FAMILIES, "study")
NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
NEXT = {
    "method": (
        "python -m fa_registry.conformance {name} --architecture resmlp",
        "fa-registry train --method {name} --seed 1 --epochs 3",
    ),
    "architecture": ("fa-registry train --method dfa --architecture {name} --seed 1 --epochs 3",),
    "dataset": ("fa-registry train --method dfa --dataset {name} --seed 1 --epochs 3",),
    "diagnostic": (
        "fa-registry info {name} --family diagnostics",
        "fa-registry train --method dfa --seed 1 --epochs 3",
    ),
}


@dataclass(frozen=True)
class Skeleton:
    """Result of the command `new`, with `commands` that the user can run next."""

    folder: Path
    files: tuple[Path, ...]
    commands: tuple[str, ...]


def new(kind: str, name: str, out: str) -> Skeleton:
    """Write the skeleton of a plug-in package or of a study into the new folder `out`/`name`.

    Args:
        kind: one of KINDS.
        name: name of the plug-in or study, a valid Python package name.
        out: parent folder. If empty, the current folder is used.

    Raises:
        InvalidFields: kind or name is invalid, or the folder exists or cannot be created.
    """
    folder = Path(out or ".") / name
    problems = [] if kind in KINDS else [f"kind: {unknown_name_text('kind', kind, KINDS)}"]
    problems += _unfit(kind, name)
    if not problems and os.path.lexists(folder):
        problems.append(f"out: {folder} already exists, so nothing was written; choose another name")
    try:
        try_writing(Path(out or "."))
    except UsageError as error:
        problems.append(f"out: {error}")
    if problems:
        raise InvalidFields("new", problems)
    texts = _study() if kind == "study" else _package(kind, name)
    for path, text in texts.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_named(text, kind, name), encoding="utf-8")
    return Skeleton(folder, tuple(folder / path for path in texts), _commands(kind, name, folder))


def _study() -> Mapping[str, str]:
    return {"study.toml": (FOLDER / "study.toml").read_text(encoding="utf-8")}


def _package(kind: str, name: str) -> Mapping[str, str]:
    sources = {
        "pyproject.toml": "pyproject.toml",
        f"{name}/{kind}.py": f"{kind}.py",
        f"tests/test_{name}.py": f"tests/{kind}.py",
    }
    texts = {path: (FOLDER / source).read_text(encoding="utf-8") for path, source in sources.items()}
    return {**texts, f"{name}/__init__.py": ""}


def _unfit(kind: str, name: str) -> list[str]:
    """Return the reasons why `name` is invalid, or an empty list."""
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        return [
            f"name: expected a Python package name such as my_{kind} (lower-case letters, digits, _; no keyword), found {name!r}"
        ]
    existing_names = study.names() if kind == "study" else FAMILIES[kind][1].names() if kind in FAMILIES else ()
    return [f"name: a {kind} {name} already exists; choose another name"] if name in existing_names else []


def _named(text: str, kind: str, name: str) -> str:
    family = FAMILIES[kind][0] if kind in FAMILIES else ""
    result = text.replace("FAMILY", family).replace("KIND", kind)
    camel = "".join(part.capitalize() for part in name.split("_"))
    return result.replace("Skeleton", camel).replace("skeleton", name)


def _commands(kind: str, name: str, folder: Path) -> tuple[str, ...]:
    path = shlex.quote(str(folder))
    if kind == "study":
        return (f"fa-registry study {path} --dry-run", f"fa-registry run {path}")
    checks = (f"pip install --editable {path}", f"python -m pytest {path}")
    return (*checks, *(command.format(name=name) for command in NEXT[kind]))
