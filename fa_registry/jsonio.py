"""Frozen dataclasses to JSON and back, canonical text, digests. Refuses NaN and infinity.

The GPU machines this package trains on have no pydantic or cattrs, and the records are few and plain,
so the codec is these few functions over `typing.get_type_hints`.
"""

from __future__ import annotations

import dataclasses
import functools
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

UNKNOWN, MISSING = ": unknown field", ": missing"
LISTED = 100  # problems of one value; a file of another kind has thousands


def encode(value: Any) -> Any:
    """Turn records, mappings and tuples into plain JSON values; raises ValueError on a number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no place in a record; use Reading.of, which records it as N/A with the reason")
    if value is None or isinstance(value, (str, bool, int, float)):  # first, for most values are such
        return value
    if hasattr(value, "__json__"):
        return encode(value.__json__())
    if dataclasses.is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def decode(hint: Any, value: Any, where: str = "record") -> Any:
    """Build an object of type `hint` from plain JSON values. Raises InvalidFields that names whatever is wrong, at any depth."""
    problems: list[str] = []
    made = _decode(hint, value, where, problems)
    if isinstance(value, Mapping) and dataclasses.is_dataclass(hint):
        problems = [_of_the_record(problem, where) for problem in problems]
    if problems:
        more = [f"and {len(problems) - LISTED:,} more"] if len(problems) > LISTED else []
        raise InvalidFields(where, [*problems[:LISTED], *more])
    return made


def _of_the_record(problem: str, where: str) -> str:
    """`record.name: missing` as `name: missing`: a field that is the record's own needs no place."""
    field = problem.removeprefix(f"{where}.")
    return field if field.endswith((UNKNOWN, MISSING)) and not {".", "["} & set(field.partition(":")[0]) else problem


def _decode(hint: Any, value: Any, where: str, problems: list[str]) -> Any:
    """The object, or anything where a problem was added."""
    if hint is Any:
        return value
    if hasattr(hint, "__from_json__"):
        return _decode_own(hint, value, where, problems)
    if dataclasses.is_dataclass(hint):
        return _decode_record(hint, value, where, problems)
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        candidates = [argument for argument in arguments if argument is not type(None)]
        return _decode(candidates[0], value, where, problems) if len(candidates) == 1 else value
    if origin in (tuple, dict, Mapping):
        return _decode_many(origin, arguments, value, where, problems)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint in (int, float) and isinstance(value, bool)):
        problems.append(f"{where}: expected {hint.__name__}, found {reprlib.repr(value)}")
    return value


def _decode_many(origin: Any, arguments: tuple, value: Any, where: str, problems: list[str]) -> Any:
    """A list or an object of values of one type. A text is neither: it would be taken apart into its characters."""
    if not isinstance(value, (list, tuple) if origin is tuple else Mapping):
        expected = "a list" if origin is tuple else "an object"
        problems.append(f"{where}: expected {expected}, found {reprlib.repr(value)}")
        return value
    if origin is tuple:
        return tuple(_decode(arguments[0], item, f"{where}[{index}]", problems) for index, item in enumerate(value))
    return {key: _decode(arguments[1], item, f"{where}.{key}", problems) for key, item in value.items()}


def _decode_own(hint: Any, value: Any, where: str, problems: list[str]) -> Any:
    """A type that writes itself: whatever it cannot make of the value is the value's fault."""
    try:
        return hint.__from_json__(value)
    except (KeyError, TypeError, ValueError):
        problems.append(f"{where}: expected what a {hint.__name__} is written as, found {reprlib.repr(value)}")
        return value


def _decode_record(record_type: type, value: Any, where: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{where}: expected an object, found {type(value).__name__}")
        return value
    before = len(problems)
    hints, required = _fields(record_type)
    problems += [f"{where}.{name}{UNKNOWN}" for name in value if name not in hints]
    problems += [f"{where}.{name}{MISSING}" for name in sorted(required - set(value))]
    found = {
        name: _decode(hints[name], item, f"{where}.{name}", problems) for name, item in value.items() if name in hints
    }
    return record_type(**found) if len(problems) == before else value


@functools.cache  # evaluating the types takes as long as decoding a record
def _fields(record_type: type) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The types of a record's fields, and the names of those without a default."""
    hints, fields = typing.get_type_hints(record_type), dataclasses.fields(record_type)
    required = (
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )
    return {field.name: hints[field.name] for field in fields}, frozenset(required)


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
