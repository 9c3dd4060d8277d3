"""Names, paths and variants of studies.

This module imports none of the large packages that are needed to read a study. A study variant has another image set or a scaled
number of epochs. The runs of a variant do not belong to the study itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fa_registry import bundled_files, jsonio
from fa_registry.errors import Problem, UnknownName, UsageError
from fa_registry.field_types import Limits

FILE = "study.toml"


class NoStudyFile(UnknownName):
    """Error for the path of a study.toml that does not exist."""

    def __init__(self, path: str):
        UsageError.__init__(self, f"{path}: no such file{_found(Path(path))}")


def names() -> list[str]:
    """Return the names of the built-in studies."""
    return sorted(path.parent.name for path in bundled_files.projects().glob(f"*/{FILE}"))


def find(name: str) -> Path:
    """Return the path of a study.toml.

    Args:
        name: name of a built-in study, or path of a study.toml or of its folder.

    Raises:
        UnknownName: no such study exists.
        NoStudyFile: the name is a path, and there is no such file.
    """
    for path in (bundled_files.projects() / name / FILE, Path(name), Path(name) / FILE):
        if os.path.isfile(path):  # Path.is_file raises if the name is longer than the file system allows
            return path
    if _is_path(name) and not os.path.lexists(name):
        raise NoStudyFile(name)
    advice = f"a study of your own is given by the path of its {FILE}{_found(Path(name))}"
    raise UnknownName("study", name, names(), advice)


def name_in_store(study: str) -> str:
    """Return the name of a study in the tags of its runs.

    Args:
        study: name of a study, or path of a study.toml or of its folder.

    Raises:
        InvalidFields: the file cannot be read or is not valid TOML.
        NoStudyFile: `study` is the path of a .toml file that does not exist.
    """
    paths = (bundled_files.projects() / study / FILE, Path(study), Path(study, FILE))
    path = next((path for path in paths if path.suffix == ".toml" and os.path.isfile(path)), None)
    if path is None and study.endswith(".toml") and not os.path.lexists(study):
        raise NoStudyFile(study)
    if path is None:  # a study whose file is elsewhere, but whose runs are in the store
        return study
    return str(jsonio.read_toml(path, f"study {study}").table.get("name") or study)


def _is_path(name: str) -> bool:
    return os.sep in name or name.endswith(".toml")


def _found(path: Path) -> str:
    """Return what was found at a path that is no study, or a similar path."""
    if os.path.isdir(path):
        return f", found a folder without {FILE}"
    if os.path.exists(path):
        return ", found something that is not a regular file"
    return f"; did you mean {path}.toml?" if os.path.isfile(f"{path}.toml") else ""


RULE = (
    "NAME replaces every image set, and random_targets:NAME replaces random_targets:…; the separate tasks lq and teacher_student "
    "do not change; settings that become equal are merged"
)
SCALING = "each number of epochs × F, rounded half up, at least 1"
OWN_TASK = ("lq", "teacher_student")
OF_A_SET = "random_targets"
TYPES = {"scale": Annotated[float, Limits(gt=0, le=1_000_000)]}
OPTIONS = {"data": "replace-dataset", "scale": "scale"}  # override → option of the command line


@dataclass(frozen=True)
class StudyVariant:
    """Differences of a study variant from the study.

    Attributes:
        data: image set that replaces the image sets of the study; empty means no replacement.
        scale: factor of the number of epochs.
    """

    data: str = ""
    scale: float = 1.0

    @property
    def overrides(self) -> dict[str, Any]:
        """Overrides that create this variant, as input of `load_study`; empty if nothing differs."""
        data_override = {"data": self.data} if self.data else {}
        return data_override | ({"scale": self.scale} if self.scale != 1 else {})

    @property
    def description(self) -> str:
        """Command-line options that create this variant, e.g. `--replace-dataset digits --scale 0.02`."""
        return " ".join(f"--{OPTIONS[name]} {value}" for name, value in self.overrides.items())

    def dataset(self, name: str) -> str:
        """Return the name of the data set that the variant uses instead of `name`."""
        family = name.partition(":")[0]
        if not self.data or family in OWN_TASK:
            return name
        return f"{OF_A_SET}:{self.data}" if family == OF_A_SET else self.data

    def epochs(self, count: int) -> int:
        """Return the scaled number of epochs, rounded (half up) and at least 1 if `count` is positive."""
        return max(1, math.floor(count * self.scale + 0.5)) if count > 0 and self.scale != 1 else count


def parse_variant(overrides: Mapping[str, Any], problems: list[Problem]) -> StudyVariant:
    """Return the variant of the overrides `data` and `scale`; append messages to `problems`."""
    data = overrides.get("data") or ""
    if data.partition(":")[0] in (*OWN_TASK, OF_A_SET):
        text = f"expected the name of an image set, found {data!r}, which is a separate task"
        problems.append(Problem(("data",), text))
    given = {"scale": overrides["scale"]} if overrides.get("scale") not in (None, "") else {}
    if given and overrides.get("epochs"):
        text = f"expected --epochs or --scale, found both ({overrides['epochs']}; {given['scale']})"
        problems.append(Problem(("scale",), text))
    values, wrong = jsonio.parse_fields(TYPES, given)
    problems += wrong
    return StudyVariant(data, **values)
