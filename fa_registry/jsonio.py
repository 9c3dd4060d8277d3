"""Frozen dataclasses to JSON and back, canonical text, digests. Refuses NaN and infinity.

The GPU machines this package trains on have no pydantic or cattrs, and the records are few and plain,
so the codec is these few functions over `typing.get_type_hints`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fa_registry.errors import InvalidFields


def encode(value: Any) -> Any:
    """Turn records, mappings and tuples into plain JSON values; raises ValueError on a number that is not finite."""
    if hasattr(value, "__json__"):
        return encode(value.__json__())
    if dataclasses.is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no place in a record; use Reading.of, which records it as N/A with the reason")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def decode(hint: Any, value: Any, where: str = "record") -> Any:
    """Build an object of type `hint` from plain JSON values; unknown and missing fields are named together."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint is Any:
        return value
    if hasattr(hint, "__from_json__"):
        return _decode_own(hint, value, where)
    if dataclasses.is_dataclass(hint):
        return _decode_record(hint, value, where)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        candidates = [argument for argument in arguments if argument is not type(None)]
        return decode(candidates[0], value, where) if len(candidates) == 1 else value
    if origin in (tuple, dict, Mapping) and not isinstance(value, (list, tuple) if origin is tuple else Mapping):
        expected = "a list" if origin is tuple else "an object"  # a text would be taken apart into its characters
        raise InvalidFields(where, [f"{where}: expected {expected}, found {value!r}"])
    if origin is tuple:
        return tuple(decode(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin in (dict, Mapping):
        return {key: decode(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint in (int, float) and isinstance(value, bool)):
        raise InvalidFields(where, [f"{where}: expected {hint.__name__}, found {value!r}"])
    return value


def _decode_own(hint: Any, value: Any, where: str) -> Any:
    """A type that writes itself: whatever it cannot make of the value is the value's fault."""
    try:
        return hint.__from_json__(value)
    except (KeyError, TypeError, ValueError) as error:
        found = f"{where}: expected what a {hint.__name__} is written as, found {reprlib.repr(value)}"
        raise InvalidFields(where, [found]) from error


def _decode_record(record_type: type, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidFields(where, [f"{where}: expected an object, found {type(value).__name__}"])
    hints = typing.get_type_hints(record_type)
    fields = {field.name: field for field in dataclasses.fields(record_type)}
    required = {
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    problems = [f"{name}: unknown field" for name in value if name not in fields]
    problems += [f"{name}: missing" for name in sorted(required - set(value))]
    if problems:
        raise InvalidFields(where, problems)
    return record_type(**{name: decode(hints[name], item, f"{where}.{name}") for name, item in value.items()})


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces. Equal records have equal text on every machine."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def pretty(value: Any) -> str:
    """Readable JSON text, still deterministic; ends with a newline."""
    return json.dumps(encode(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of the canonical text."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
