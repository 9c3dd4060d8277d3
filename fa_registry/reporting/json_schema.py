"""JSON Schema (2020-12) of frozen dataclasses: what jsonio reads back, with the words of their docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from fa_registry.records import Reading, Scalar, Series

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
# What has its own way of being written (`__json__`), by hand.
OWN: Mapping[type, Mapping[str, Any]] = types.MappingProxyType(
    {
        Reading: {
            "description": "One measured number, or why there is none.",
            "oneOf": [
                {"type": "number"},
                {
                    "type": "object",
                    "properties": {"na": {"type": "string", "minLength": 1, "description": "The reason."}},
                    "required": ["na"],
                    "additionalProperties": False,
                },
            ],
        },
        Series: {
            "description": "One reading an epoch; the index is the epoch, 0 is the initialisation.",
            "type": "array",
            "items": {"$ref": "#/$defs/Reading"},
        },
    }
)


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What types do not say. meanings: `Record` or `Record.field` → words, where its docstring has none.

    choices: `Record.field` → the closed set of its words. constants: `Record.field` → its only value.
    """

    meanings: Mapping[str, str]
    choices: Mapping[str, Sequence[str]]
    constants: Mapping[str, Any]


def schema_of(root: type, knowledge: Knowledge) -> dict[str, Any]:
    """The schema of a record and of every record inside it, each once under `$defs`, by name; fields in their order.

    A field with a default may be absent, as the reader allows; a field that is not declared may not be there.
    """
    definitions = {
        kind.__name__: _definition(kind, knowledge) for kind in sorted(within(root), key=lambda one: one.__name__)
    }
    return {"$schema": DIALECT, **_reference(root), "$defs": definitions}


def within(root: type) -> tuple[type, ...]:
    """The record and every type with a definition of its own that occurs in it, in the order they occur."""
    found: dict[type, None] = {}
    waiting = [root]
    while waiting:
        kind = waiting.pop(0)
        if typing.get_args(kind):
            waiting += typing.get_args(kind)
        elif kind not in found and (kind in OWN or dataclasses.is_dataclass(kind)):
            found[kind] = None
            # A Series is of readings, which its definition by hand refers to.
            waiting += [Reading] if kind in OWN else typing.get_type_hints(kind).values()
    return tuple(found)


def described(record: type, knowledge: Knowledge) -> tuple[str, dict[str, str]]:
    """What a record is, and what each of its fields is: from its docstring, `name: words.`, else from `meanings`."""
    names = [field.name for field in dataclasses.fields(record)]
    anyone = "|".join(map(re.escape, names))
    marker = rf"(?:^|(?<=[.;] )|(?<=\n))((?:{anyone})(?:(?:, | and )(?:{anyone}))*): "
    start, *parts = re.split(marker, inspect.cleandoc(record.__doc__ or ""))
    words: dict[str, str] = {}
    for named, text in zip(parts[::2], parts[1::2], strict=True):
        words |= dict.fromkeys(re.split(", | and ", named), _sentence(text))
    meanings = {name: knowledge.meanings.get(f"{record.__name__}.{name}", "") for name in names}
    return _sentence(start) or knowledge.meanings.get(record.__name__, ""), {
        name: words.get(name) or meanings[name] for name in names
    }


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".;")


def _definition(kind: type, knowledge: Knowledge) -> dict[str, Any]:
    if kind in OWN:
        return dict(OWN[kind])
    summary, meanings = described(kind, knowledge)
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    places = {field.name: f"{kind.__name__}.{field.name}" for field in fields}
    return {
        "description": summary,
        "type": "object",
        "properties": {
            name: {"description": meanings[name], **_property(place, hints[name], knowledge)}
            for name, place in places.items()
        },
        "required": [one.name for one in fields if _needed(one) or places[one.name] in knowledge.constants],
        "additionalProperties": False,
    }


def _needed(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _property(place: str, hint: Any, knowledge: Knowledge) -> dict[str, Any]:
    if place in knowledge.constants:
        return {"const": knowledge.constants[place]}
    if place in knowledge.choices:
        return {"enum": list(knowledge.choices[place])}
    return _reference(hint)


def _reference(hint: Any) -> dict[str, Any]:
    """The schema of a type; a record's own is a reference to its definition."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if hint == Scalar:
        return {"type": ["string", "number", "boolean"]}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_reference(argument) for argument in arguments]}
    if origin is tuple:
        return _array(arguments)
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _reference(arguments[1])}
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _array(arguments: tuple[Any, ...]) -> dict[str, Any]:
    if arguments[1:] == (...,):
        return {"type": "array", "items": _reference(arguments[0])}
    count = len(arguments)
    items = [_reference(argument) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}
