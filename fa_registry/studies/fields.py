"""What may stand in a study.toml, and every key of one that is unknown, missing or of the wrong type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fa_registry.errors import unknown_name_text
from fa_registry.training.specs import RECIPE_FIELDS

TOP = ("name", "title", "edition", "cost", "recipe", "controls", "grid")
AXES = {
    "methods": "method",
    "architectures": "architecture",
    "datasets": "dataset",
    "seeds": "seed",
    "penalties": "penalty",
    "epochs": "epochs",
}
FIXED = ("method_options", "architecture_options")
RECIPE = ("epochs", "precision", *RECIPE_FIELDS)
CONTROLS = ("frozen", "shallow", "ladder")
TABLES = {"recipe": RECIPE, "controls": CONTROLS}  # of the file, and of one grid, where they come first
REQUIRED = ("name", "title", "edition", "grid")
TEXTS = ("name", "title", "edition", "cost")
ENTRIES = {  # of the other axes: text
    "seeds": ("a whole number", int),
    "epochs": ("a whole number", int),
    "penalties": ("a number", (int, float)),
}


def wrong_fields(raw: Mapping[str, Any]) -> list[str]:
    """Every unknown, missing or wrongly typed key of the file; what a spec's fields hold is parse_spec's to judge."""
    problems = _unknown("", raw, TOP)
    problems += [f"{name}: missing" for name in REQUIRED if raw.get(name, "") in ("", [])]
    problems += [_expected(name, "text", raw[name]) for name in TEXTS if not isinstance(raw.get(name, ""), str)]
    problems += _wrong_tables("", raw)
    if not isinstance(raw.get("grid", []), list) and raw["grid"] != "":
        problems.append(_expected("grid", "[[grid]] tables", raw["grid"]))
    for index, grid in enumerate(grids(raw)):
        if isinstance(grid, Mapping):
            problems += _unknown(f"grid[{index}].", grid, (*AXES, *FIXED, *TABLES, "name"))
            problems += _wrong_tables(f"grid[{index}].", grid)
        problems += wrong_types(index, grid)
    return problems


def wrong_types(index: int, grid: Any) -> list[str]:
    """What keeps one [[grid]] from being expanded."""
    where = f"grid[{index}]"
    if not isinstance(grid, Mapping):
        return [_expected(where, "a table", grid)]
    problems = [_expected(f"{where}.name", "text", grid["name"])] if not isinstance(grid.get("name", ""), str) else []
    for axis in (axis for axis in AXES if axis in grid):
        words, kinds = ENTRIES.get(axis, ("text", str))
        if not isinstance(grid[axis], list):
            problems.append(_expected(f"{where}.{axis}", "a list", grid[axis]))
            continue
        problems += [
            _expected(f"{where}.{axis}[{place}]", words, value)
            for place, value in enumerate(grid[axis])
            if isinstance(value, bool) or not isinstance(value, kinds)
        ]
    problems += [
        _expected(f"{where}.{name}", "a table", grid[name])
        for name in FIXED
        if not isinstance(grid.get(name, {}), Mapping)
    ]
    return problems


def grids(raw: Mapping[str, Any]) -> list[Any]:
    """The [[grid]] tables; none where there is something else in their place."""
    return raw["grid"] if isinstance(raw.get("grid"), list) else []


def table(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The known entries of the table `recipe` or `controls`; none where it is no table."""
    written = raw[name] if isinstance(raw.get(name), Mapping) else {}
    return {key: value for key, value in written.items() if key in TABLES[name]}


def _wrong_tables(where: str, owner: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the recipe and the controls of the file or of one grid."""
    for name, known in TABLES.items():
        if not isinstance(owner.get(name, {}), Mapping):
            yield _expected(f"{where}{name}", "a table", owner[name])
        else:
            yield from _unknown(f"{where}{name}.", owner.get(name, {}), known)
    for control, value in table(owner, "controls").items():
        if not isinstance(value, bool):
            yield _expected(f"{where}controls.{control}", "true or false", value)


def _expected(where: str, what: str, given: Any) -> str:
    return f"{where}: expected {what}, found {given!r}"


def _unknown(where: str, names: Mapping[str, Any], known: tuple[str, ...]) -> list[str]:
    return [f"{where}{name}: {unknown_name_text('key', name, known)}" for name in names if name not in known]
