"""Names and paths of studies.

This module imports none of the large packages that are needed to read a study.
"""

from __future__ import annotations

import os
from pathlib import Path

from fa_registry import bundled_files, jsonio
from fa_registry.errors import UnknownName

FILE = "study.toml"


def names() -> list[str]:
    """Return the names of the built-in studies."""
    return sorted(path.parent.name for path in bundled_files.projects().glob(f"*/{FILE}"))


def find(name: str) -> Path:
    """Return the path of a study.toml, or raise UnknownName.

    The name is that of a built-in study, or the path of a study.toml or of its folder.
    """
    for path in (bundled_files.projects() / name / FILE, Path(name), Path(name) / FILE):
        if os.path.isfile(path):  # Path.is_file raises if the name is longer than the file system allows
            return path
    advice = f"a study of your own is given by the path of its {FILE}{_found(Path(name))}"
    raise UnknownName("study", name, names(), advice)


def name_in_store(study: str) -> str:
    """Return the name of a study, given by name or path, in the tags of its runs.

    The function raises InvalidFields if the file cannot be read or is not valid TOML.
    """
    paths = (bundled_files.projects() / study / FILE, Path(study), Path(study, FILE))
    path = next((path for path in paths if path.suffix == ".toml" and os.path.isfile(path)), None)
    if path is None:  # a study whose file is elsewhere, but whose runs are in the store
        return study
    return str(jsonio.read_toml(path, f"study {study}")[0].get("name") or study)


def _found(path: Path) -> str:
    """Return what was found at a path that is no study, or a similar path."""
    if os.path.isdir(path):
        return f", found a folder without {FILE}"
    if os.path.exists(path):
        return ", found something that is not a regular file"
    return f"; did you mean {path}.toml?" if os.path.isfile(f"{path}.toml") else ""
