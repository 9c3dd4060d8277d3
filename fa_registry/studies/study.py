"""study.toml → run specs: a grid of methods, architectures, data sets, seeds and penalties, and the controls it needs."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fa_registry import resources
from fa_registry.errors import InvalidFields, UnknownName, unknown_name_text
from fa_registry.records import RunSpec
from fa_registry.training.specs import RECIPE_FIELDS, parse_spec

FILE = "study.toml"
TOP = ("name", "title", "edition", "cost", "recipe", "controls", "grid")
AXES = {
    "methods": "method",
    "architectures": "architecture",
    "datasets": "dataset",
    "seeds": "seed",
    "penalties": "penalty",
}
FIXED = ("method_options", "architecture_options")
RECIPE = ("epochs", "precision", *RECIPE_FIELDS)
CONTROLS = ("frozen", "shallow")


@dataclass(frozen=True)
class Study:
    """specs: methods first, then the controls, without repetition. cost: what it is expected to take, in words."""

    name: str
    title: str
    edition: str
    cost: str
    specs: tuple[RunSpec, ...]


def names() -> list[str]:
    """Studies that ship with the package."""
    return sorted(path.parent.name for path in resources.projects().glob(f"*/{FILE}"))


def find(name: str) -> Path:
    """The study.toml of a shipped study by name, or of a user's by the path of its file or folder."""
    for path in (resources.projects() / name / FILE, Path(name), Path(name) / FILE):
        if path.is_file():
            return path
    raise UnknownName("study", name, names())


def load_study(name: str, overrides: Mapping[str, Any] | None = None) -> Study:
    """Expand a study. overrides: `epochs`, `seeds`, `device`, replacing the file's. InvalidFields names all that is wrong."""
    path = find(name)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidFields(f"study {path}", [f"file: not TOML: {error}"]) from error
    problems = _wrong_names(raw)
    if problems:
        raise InvalidFields(f"study {path}", problems)
    given = {key: value for key, value in (overrides or {}).items() if value}
    specs: list[RunSpec] = []
    for cell in _cells(raw, given):
        try:
            specs.append(parse_spec(cell))
        except InvalidFields as error:
            problems += error.problems
    if not specs and not problems:
        problems.append("grid: expands to no run; every list needs at least one entry")
    if problems:
        raise InvalidFields(f"study {path}", list(dict.fromkeys(problems)))
    controls = [control for control in CONTROLS if raw.get("controls", {}).get(control, control == "frozen")]
    everything = dict.fromkeys([spec.identity for spec in specs])
    by_identity = {spec.identity: spec for spec in [*specs, *_controls(specs, controls)]}
    ordered = [by_identity[identity] for identity in {**everything, **dict.fromkeys(by_identity)}]
    return Study(raw["name"], raw["title"], raw["edition"], raw.get("cost", ""), tuple(ordered))


def _controls(specs: list[RunSpec], controls: list[str]) -> Iterator[RunSpec]:
    """For every setting and seed that is trained, its controls: by bp, without penalty."""
    for spec, control in product(specs, controls):
        recipe = dataclasses.replace(spec.recipe, credit_norm="rms")
        yield dataclasses.replace(spec, method="bp", method_options={}, penalty=0.0, control=control, recipe=recipe)


def _cells(raw: Mapping[str, Any], overrides: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One dictionary of loose spec fields for every cell of every grid."""
    recipe = {**raw.get("recipe", {}), **{name: value for name, value in overrides.items() if name != "seeds"}}
    for grid in raw["grid"]:
        axes = {field: grid[axis] for axis, field in AXES.items() if axis in grid}
        if "seeds" in overrides:
            axes["seed"] = overrides["seeds"]
        fixed = {name: grid[name] for name in FIXED if name in grid}
        for values in product(*axes.values()):
            yield {**recipe, **fixed, **dict(zip(axes, values, strict=True))}


def _wrong_names(raw: Mapping[str, Any]) -> list[str]:
    problems = _unknown("", raw, TOP)
    problems += [f"{name}: missing" for name in ("name", "title", "edition", "grid") if not raw.get(name)]
    problems += _unknown("recipe.", _table(raw, "recipe"), RECIPE)
    problems += _unknown("controls.", _table(raw, "controls"), CONTROLS)
    grids = raw.get("grid", [])
    if not isinstance(grids, list) or not all(isinstance(grid, Mapping) for grid in grids):
        return [*problems, "grid: expected [[grid]] tables"]
    for index, grid in enumerate(grids):
        where = f"grid[{index}]."
        problems += _unknown(where, grid, (*AXES, *FIXED))
        problems += [
            f"{where}{axis}: expected a list, found {grid[axis]!r}"
            for axis in AXES
            if axis in grid and not isinstance(grid[axis], list)
        ]
    return problems


def _table(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return raw[name] if isinstance(raw.get(name), Mapping) else {}


def _unknown(where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> list[str]:
    return [f"{where}{name}: {unknown_name_text('key', name, known)}" for name in table if name not in known]
