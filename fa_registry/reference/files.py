"""Generator of the tables in docs/reference-files.md: the keys of the files that users write.

Names, types and defaults come from the records that read the files. The descriptions are the texts below the fields of the records.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fa_registry.protocol.edition_schema import Condition, EditionFile, FarSeed, Rule
from fa_registry.protocol.engine import JUDGES
from fa_registry.protocol.operators import OPERATORS, TAKES
from fa_registry.protocol.waivers import WaiverFields
from fa_registry.records import Option, Recipe, RunSpec, Waiver
from fa_registry.reference import filled, table
from fa_registry.reference.templates import first_line, text_below, type_text
from fa_registry.studies.study import AXES, CONTROLS, TABLES, Grid, RecipeField, StudyTable
from fa_registry.training import controls
from fa_registry.training.specs import REQUIRED, TYPES

NEEDED = "needed"
LISTS = [axis for axis, field in AXES.items() if field in REQUIRED and axis not in TABLES["recipe"]]  # keys of a grid
OF_A_WAIVER = {field.name: field for field in dataclasses.fields(WaiverFields)}
KINDS = {
    **{name: f"[table](#{name})" for name in TABLES},
    **{name: "date" for name, hint in typing.get_type_hints(WaiverFields).items() if hint is datetime.date},
}  # kinds of values that are more specific than the type
KEYS = ("key", "values", "default", "description")


def files_reference() -> str:
    """Return docs/reference-files.md with the current tables."""
    needed_by_waivers = [name for name, key in OF_A_WAIVER.items() if _default(key) == NEEDED]
    return filled(
        "docs/reference-files.md",
        _keys(StudyTable),
        _keys(Grid, needed=LISTS),
        _recipe(),
        _named(_controls(), "control"),
        _keys(Waiver, OF_A_WAIVER, needed_by_waivers),
        *map(_keys, (EditionFile, Rule, Condition, FarSeed)),
        _named({"scalar": "The value of a metric that has one value per run.", **_statement(TAKES)}, "take"),
        _named(_statement({name: operator.compare for name, operator in OPERATORS.items()}), "fires"),
        _named(_statement(JUDGES), "judge"),
        _keys(Option),
    )


def _keys(record: type, names: Iterable[str] = (), needed: Iterable[str] = ()) -> str:
    hints, text = typing.get_type_hints(record), text_below(record)
    fields = {field.name: field for field in dataclasses.fields(record)}
    rows = [
        (
            f"`{name}`",
            KINDS.get(name) or type_text(hints[name]),
            NEEDED if name in needed else _default(fields[name]),
            text[name],
        )
        for name in names or fields
    ]
    return table(KEYS, rows)


def _recipe() -> str:
    rows = []
    for name in typing.get_args(RecipeField):
        record = Recipe if name in {field.name for field in dataclasses.fields(Recipe)} else RunSpec
        (field,) = (field for field in dataclasses.fields(record) if field.name == name)
        rows.append((f"`{name}`", type_text(TYPES[name]), _default(field), text_below(record)[name]))
    return table(KEYS, rows)


def _named(description: Mapping[str, str], heading: str) -> str:
    return table((heading, ""), ((f"`{name}`", text) for name, text in description.items()))


def _statement(functions: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    return {name: first_line(function) for name, function in functions.items()}


def _controls() -> dict[str, str]:
    """Return a mapping control → description, from the docstring of training.controls."""
    descriptions = dict(re.findall(r"^(\w+?)(?:_K)?: (.+)$", controls.__doc__ or "", re.MULTILINE))
    return {name: descriptions[name] for name in CONTROLS}


def _default(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "" if field.default_factory is not dataclasses.MISSING else NEEDED
    if field.default in ("", None, ()):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
