"""study.toml → run specs: a grid of methods, architectures, data sets, seeds and penalties, and the controls it needs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fa_registry import resources
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.records import RunSpec
from fa_registry.studies.cells import GridCell, cells, controls_of
from fa_registry.studies.fields import wrong_fields
from fa_registry.studies.twins import Twin, parse_twin
from fa_registry.training.specs import parse_spec

FILE = "study.toml"


@dataclass(frozen=True)
class Study:
    """specs: methods first, then the controls, without repetition. cost: what it is expected to take, in words.

    twin: how it differs from the file. labels: identity of a setting → what the file calls it, `main`; several in a twin
    whose data make one of two.
    """

    name: str
    title: str
    edition: str
    cost: str
    specs: tuple[RunSpec, ...]
    twin: Twin = Twin()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, list[RunSpec]]:
        """Identity of a setting → its specs, controls too, in the study's order."""
        specs_of: dict[str, list[RunSpec]] = {}
        for spec in self.specs:
            specs_of.setdefault(spec.setting.identity, []).append(spec)
        return specs_of


def names() -> list[str]:
    """Studies that ship with the package."""
    return sorted(path.parent.name for path in resources.projects().glob(f"*/{FILE}"))


def find(name: str) -> Path:
    """The study.toml of a shipped study by name, or of a user's by the path of its file or folder."""
    for path in (resources.projects() / name / FILE, Path(name), Path(name) / FILE):
        if path.is_file():
            return path
    raise UnknownName("study", name, names())


@dataclass(frozen=True)
class StudyFile:
    """A study.toml as it was read, to be expanded into itself and into any twin of it."""

    path: Path
    raw: Mapping[str, Any]


def load_study(name: str, overrides: Mapping[str, Any] | None = None) -> Study:
    """Read a study and expand it: see `expanded`. Raises UnknownName too."""
    return expanded(read_study(name), overrides or {})


def read_study(name: str) -> StudyFile:
    """The file of a study; UnknownName where there is none, InvalidFields where it is no TOML."""
    path = find(name)
    try:
        return StudyFile(path, tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFields(f"study {path}", [f"file: not TOML: {error}"]) from error


def expanded(file: StudyFile, overrides: Mapping[str, Any]) -> Study:
    """The runs of a study. InvalidFields names all that is wrong.

    overrides: `epochs`, `seeds`, `device`, replacing the file's; `data`, `scale`, making a twin of it (twins.RULE, SCALING).
    """
    raw, problems = file.raw, wrong_fields(file.raw)
    given = {key: value for key, value in overrides.items() if value}
    twin = parse_twin(overrides, problems)
    trained: list[tuple[RunSpec, GridCell]] = []
    for cell in cells(raw, given, twin):
        try:
            trained.append((parse_spec(cell.fields), cell))
        except InvalidFields as error:
            problems += error.problems
    if not trained and not problems:
        problems.append("grid: expands to no run; every list needs at least one entry")
    if problems:
        raise InvalidFields(f"study {file.path}", list(dict.fromkeys(problems)))
    return Study(
        raw["name"], raw["title"], raw["edition"], raw.get("cost", ""), _specs(trained), twin, _labels(trained)
    )


def _specs(trained: list[tuple[RunSpec, GridCell]]) -> tuple[RunSpec, ...]:
    """Every trained spec, then their controls; what repeats is one run."""
    controls = [control for spec, cell in trained for control in controls_of(spec, cell.controls)]
    by_identity = {spec.identity: spec for spec in [*(spec for spec, _ in trained), *controls]}
    return tuple(by_identity.values())


def _labels(trained: list[tuple[RunSpec, GridCell]]) -> dict[str, tuple[str, ...]]:
    names_of: dict[str, dict[str, None]] = {}
    for spec, cell in trained:
        if cell.name:
            names_of.setdefault(spec.setting.identity, {})[cell.name] = None
    return {setting: tuple(names) for setting, names in names_of.items()}
