"""Conversion of frozen dataclasses to JSON and back, canonical text, and digests.

NaN and infinity are never read or written. `decode` validates values with pydantic and rewrites the error messages of
pydantic in the style of the package. pydantic is imported when the first value is decoded, because this takes 0.1 s.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import hashlib
import json
import math
import operator
import re
import reprlib
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, NewType

from fa_registry.errors import (
    InvalidFields,
    Problem,
    Steps,
    UnknownName,
    UsageError,
    field_path,
    shortened,
    unknown_name_text,
)
from fa_registry.field_types import FieldProblems, Limits
from fa_registry.safe_files import RECORD, UnreadableFile, open_file, read_file, resolve_user_path
from fa_registry.schema_number import KEY, SCHEMA, check_schema
from fa_registry.toml_lines import error_line, key_lines

IN_PIECES = 2  # nesting levels whose entries are digested one by one, such as the runs of a report
MOST_ERRORS = 100_000  # problems of one value that are searched for those to list
LISTED = 100  # problems of one value that are listed; a file of the wrong kind would have thousands
DEEPEST = 50  # nesting depth of tables and lists; the files of the package have at most 12
TOO_DEEP = f"expected at most {DEEPEST} nested tables and lists, found more"
DIGEST_LENGTH = 64  # characters of a SHA-256
LONGEST_WHOLE = 20  # characters of a 64-bit integer
HALF = re.compile(r"\\u[dD][89a-fA-F]")  # half of a surrogate pair; the other half may be missing
DECIMAL = re.compile(r"\s*[+-]?\d*\.\d*\s*")  # 4.0, which pydantic takes for a whole number
DATE = "a date such as 2026-11-30"
EXPECTED = {  # pydantic's error type → what was expected
    "string": "text",
    "int": "a whole number",
    "float": "a finite number",
    "finite_number": "a finite number",
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "date": DATE,
    "mapping": "a table",
    "dict": "a table",
    "dataclass": "a table",
    "greater_than": "more than {gt:,.15g}",
    "greater_than_equal": "at least {ge:,.15g}",
    "less_than": "less than {lt:,.15g}",
    "less_than_equal": "at most {le:,.15g}",
    "too_short": "at least {min_length} entries",
    "string_pattern_mismatch": "text of the form {pattern}",
}
EMPTY = ("string_pattern_mismatch", "too_short")  # pydantic's error types of a blank text or an empty list


def encode(value: Any) -> Any:
    """Convert dataclasses, mappings and tuples to plain JSON values.

    If an object has a method `__json__`, the result of this method is converted instead of the object.

    Raises:
        ValueError: a value is infinite or NaN.
        TypeError: a value has a type that JSON cannot represent.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(
            f"expected a finite number in a record, found {value}; use Reading.of, which records N/A with the reason"
        )
    if value is None or isinstance(value, (str, bool, int, float)):  # checked first: most values are of these types
        return value
    if hasattr(value, "__json__"):
        return encode(value.__json__())
    if dataclasses.is_dataclass(value):
        return {name: encode(getattr(value, name)) for name in _field_names(type(value))}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if _FLOAT.issuperset(map(type, value)) and math.isfinite(sum(value)):
            return list(value)  # a long series of numbers
        return [encode(item) for item in value]
    raise TypeError(f"expected a value that JSON can represent, found a {type(value).__name__}")


_FLOAT = frozenset((float,))


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def decode(hint: Any, value: Any, subject: str = "record") -> Any:
    """Convert plain JSON or TOML values to an object of type `hint`.

    Text is never converted to a number, and 1 is never converted to true. A dataclass whose fields must also agree with each
    other is a subclass of `Checked`.

    Args:
        hint: type of the object, for example a dataclass.
        value: plain value to convert.
        subject: name of the file or record at the start of an error message.

    Raises:
        InvalidFields: lists every problem at any depth, each with the path of its field.
    """
    result, problems = try_decode(hint, value)
    if problems:
        raise InvalidFields(subject, problems)
    return result


def try_decode(hint: Any, value: Any) -> tuple[Any, list[Problem]]:
    """Convert plain values as `decode` does, but return the problems instead of raising an error.

    The result is (object, []) if the value is valid, else (None, problems). The caller can add problems to the list.
    """
    checked = adapter(hint, strict=True)
    from pydantic import ValidationError

    try:
        return _validated(checked, value), []
    except ValidationError as error:
        return None, list(_problems(hint, value, error))
    except ValueError as error:  # nested too deep, or half of a surrogate pair
        return None, [Problem((), f"record: {error}")]


def valid_part(hint: Any, value: Any) -> Any:
    """Return a copy of a plain table in which None replaces what is wrong.

    Unknown fields and values of a wrong type are wrong; `try_decode` reports them. The caller can check the other values
    further, so that all problems of a file are reported together.
    """
    checked = adapter(hint, strict=True)
    from pydantic import ValidationError

    part = copy.deepcopy(value)
    try:
        _validated(checked, value)
    except ValidationError as error:
        wrong = (tuple(_steps(value, each)) for each in error.errors(include_url=False) if each["type"] != "too_short")
        for *owners, last in sorted(filter(None, wrong), key=len, reverse=True):  # the innermost first
            functools.reduce(operator.getitem, owners, part)[last] = None
    return part


def _validated(checked: Any, value: Any) -> Any:
    from pydantic_core import to_json

    # strict validation accepts a list for a tuple and a table for a dataclass only in a JSON text
    return checked.validate_json(to_json(value, inf_nan_mode="constants"))


def parse_fields(
    types: Mapping[str, Any], table: Mapping[str, Any], noun: str = "field"
) -> tuple[dict[str, Any], list[Problem]]:
    """Convert each value that a user typed, also text, to the type of its field.

    Args:
        types: name of a field → its type.
        table: name → value, for example the parameters of MLflow, which are texts.
        noun: noun for a field in the message on an unknown name.

    Returns:
        The valid values, and one problem per unknown or wrong field.
    """
    values, problems = {}, []
    for name, value in table.items():
        if name not in types:
            problems.append(Problem((name,), unknown_name_text(noun, name, types)))
            continue
        # pydantic would convert true to 1, and round the integer of another package
        typed = str(value) if isinstance(value, Integral) and type(value) is not int else value
        try:
            valid = adapter(types[name], coerce_numbers_to_str=True).validate_python(typed)
            if (
                type(valid) is int and isinstance(value, str) and DECIMAL.fullmatch(value)
            ):  # a command may convert it itself
                problems.append(Problem((name,), f"expected a whole number, found {describe_value(value)}"))
            else:
                values[name] = valid + 0.0 if isinstance(valid, float) else valid  # -0.0 has another digest than 0.0
        except UnknownName as error:
            problems.append(Problem((name,), str(error)))
        except ValueError as error:
            details = ({**each, "loc": (name,), "input": value} for each in error.errors(include_url=False))
            problems += _lines(Mapping[str, types[name]], table, details)
    return values, problems


def _problems(hint: Any, value: Any, error: Any) -> Iterator[Problem]:
    """Yield the problems of a validation error; a table of the wrong kind may have thousands."""
    count = error.error_count()
    if count > MOST_ERRORS:  # a million errors as dictionaries would take gigabytes
        yield Problem((), f"record: {count:,} problems; too many to list")
        return
    yield from _lines(hint, value, error.errors(include_url=False)[:LISTED])
    if count > LISTED:
        yield Problem((), f"and {count - LISTED:,} more problems")


@functools.cache  # building an adapter takes as long as reading a hundred records
def adapter(hint: Any, **config: Any) -> Any:
    """Return a pydantic TypeAdapter for a type.

    The adapter refuses undeclared fields, NaN and infinity.

    Args:
        hint: type to validate.
        **config: further settings of pydantic's ConfigDict.

    Raises:
        UsageError: pydantic is not installed; a machine that only trains does not need pydantic.
    """
    try:
        from pydantic import ConfigDict, TypeAdapter
    except ImportError as error:
        raise UsageError(
            f"pydantic is needed to read {getattr(hint, '__name__', hint)}, but is not installed: pip install 'pydantic>=2.12'"
        ) from error
    # pydantic accepts settings only for a NewType of a dataclass, which validates the same values as the dataclass
    return TypeAdapter(NewType("Root", hint), config=ConfigDict(extra="forbid", allow_inf_nan=False, **config))


def _lines(hint: Any, value: Any, errors: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield one problem per wrong field, even if pydantic tried several types for this field."""
    expected: dict[Steps, list[str]] = {}
    actual_values: dict[Steps, str] = {}
    for error in errors:
        steps = tuple(_steps(value, error))
        kind = error["type"]
        if kind == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]:
            continue  # pydantic counts only the valid entries; each other entry has its error
        if kind == "missing" or (kind in EMPTY and not "".join(map(str, error["input"])).strip()):
            yield Problem(steps, "missing")
        elif kind == "unexpected_keyword_argument" or error["loc"][-1:] == ("[key]",):
            yield Problem(steps, unknown_name_text("field", steps[-1], _names(hint, steps[:-1])))
        elif kind == "literal_error":
            yield Problem(steps, unknown_name_text("value", error["input"], _names(hint, steps)))
        elif kind == "value_error":
            cause = error["ctx"]["error"]
            for name, text in cause.args[0] if isinstance(cause, FieldProblems) else [("", cause)]:
                wrong = (*steps, name) if name else steps
                yield Problem(wrong, str(text) if wrong else f"record: {text}")
        else:
            expectation = EXPECTED.get(kind) or EXPECTED.get(kind.partition("_")[0], error["msg"])
            expectation = expectation.format(**error.get("ctx", {}))
            expectation += _brackets(field_path(steps), expectation, error["input"])
            expected.setdefault(steps, []).append(expectation)
            actual_values[steps] = describe_value(error["input"])
    for steps, expectations in expected.items():
        text = f"expected {' or '.join(dict.fromkeys(expectations))}, found {actual_values[steps]}"
        yield Problem(steps, text if steps else f"record: {text}")


def _brackets(path: str, expectation: str, found: Any) -> str:
    """Return how to correct the brackets in TOML; empty if they are right."""
    if expectation == "a list" and isinstance(found, Mapping):
        return f" of tables (write [[{path}]] instead of [{path}])"
    if expectation == "a table" and isinstance(found, list) and found and isinstance(found[0], Mapping):
        return f" (write [{path}] instead of [[{path}]])"
    return ""


def _steps(value: Any, error: Mapping[str, Any]) -> Iterator[str | int]:
    """Yield the names and indices that lead to a wrong field, without the type names of pydantic."""
    for step in error["loc"]:
        is_present = isinstance(value, Mapping) and step in value
        is_present = is_present or (isinstance(value, (list, tuple)) and isinstance(step, int) and step < len(value))
        if is_present:
            value = value[step]
        elif error["type"] != "missing":
            return
        yield step


def _names(hint: Any, steps: Iterable[str | int]) -> list[str]:
    """Return the field names or literals that type `hint` allows at the path `steps`."""
    for step in steps:
        hint = _without_none(hint)
        arguments = typing.get_args(hint)
        if dataclasses.is_dataclass(hint):
            hint = typing.get_type_hints(hint)[step]
        elif isinstance(step, int):
            hint = arguments[0] if ... in arguments else arguments[step]
        else:
            hint = arguments[1]  # a mapping: the type of its values
    hint = _without_none(hint)
    if dataclasses.is_dataclass(hint):
        return [field.name for field in dataclasses.fields(hint)]
    if typing.get_origin(hint) is Mapping:
        hint = typing.get_args(hint)[0]
    return [str(argument) for argument in typing.get_args(hint)]


def _without_none(hint: Any) -> Any:
    hint = hint.__origin__ if typing.get_origin(hint) is Annotated else hint
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0] if typing.get_origin(hint) in (typing.Union, types.UnionType) and len(kinds) == 1 else hint


def is_finite(value: Any) -> bool:
    """Return whether a value is a finite number that fits in a float, and neither text nor a boolean."""
    try:
        return isinstance(value, (float, int)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def describe_value(value: Any) -> str:
    """Return a short one-line description of a wrong value, even of a huge list, for an error message."""
    return shortened(reprlib.repr(value))


@dataclasses.dataclass(frozen=True)
class TomlFile:
    """Contents of a TOML file.

    Attributes:
        path: path as the user typed it.
        table: contents without the schema number.
        text: text of the file.
        digest: SHA-256 (hex) of the bytes of the file.
    """

    path: Path
    table: dict[str, Any]
    text: str = ""
    digest: str = ""

    @functools.cached_property
    def lines(self) -> dict[Steps, int]:
        """Line of each key, table and list entry; a new dictionary, which the caller may change."""
        return key_lines(self.text)

    def located(self, problem: Problem) -> Problem:
        """Return a problem of this file with the line of the field, or of the innermost table that has a line."""
        prefixes = (problem.steps[:length] for length in range(len(problem.steps), 0, -1))
        line = next((self.lines[prefix] for prefix in prefixes if prefix in self.lines), 0)
        return Problem(problem.steps, problem.text, str(self.path), line)


def read_toml(path: Path, subject: str, has_dates: bool = False) -> TomlFile:
    """Read a TOML file of the user or of this package; a store contains none.

    Args:
        path: path as the user typed it; links are followed.
        subject: name of the file in an error message.
        has_dates: whether dates are allowed; validation would otherwise accept a date as text.

    Raises:
        InvalidFields: the file cannot be read, is not UTF-8, is not valid TOML or contains an integer outside the 64-bit range.
        UsageError: the file is for another schema number.
    """
    data, text = b"", ""
    try:
        data = read_file(resolve_user_path(path))
        text = data.decode("utf-8-sig")  # editors on Windows write a byte order mark
        table = tomllib.loads(text)
        check_depth(table)
    except UnreadableFile as error:
        raise InvalidFields(subject, [Problem((), error.reason, str(path))]) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"not TOML: expected text in UTF-8, found the byte 0x{data[error.start]:02x}"
        raise InvalidFields(subject, [Problem((), problem, str(path), line)]) from error
    except (ValueError, RecursionError) as error:  # not TOML, or a number of thousands of digits
        raise InvalidFields(subject, [Problem((), f"not TOML: {error}", str(path), error_line(text))]) from error
    file = TomlFile(path, table, text, hashlib.sha256(data).hexdigest())
    if problems := [file.located(problem) for problem in _beyond_toml((), table, has_dates)]:
        raise InvalidFields(subject, problems)
    # the author of a file need not write the number: without it, the file is meant for the installed package
    check_schema(
        subject, table.pop(KEY, SCHEMA), f"write the file again by docs/reference-files.md, with {KEY} = {SCHEMA}"
    )
    return file


def _beyond_toml(steps: Steps, value: Any, has_dates: bool) -> Iterator[Problem]:
    """Yield one problem per value that JSON or another TOML reader cannot represent.

    Not every TOML reader accepts an integer outside the signed 64-bit range.
    """
    if isinstance(value, (dict, list)):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _beyond_toml((*steps, step), item, has_dates)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:  # Python could not write it or convert it to float
        text = f"expected a whole number from -2^63 to 2^63 - 1, found a number of {value.bit_length()} bits"
        yield Problem(steps, text)
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(steps, f"expected a finite number, found {value}")
    elif isinstance(value, (datetime.date, datetime.time)) and not has_dates:
        text = f"expected text, a number, true, false, a list or a table, found the date or time {value}"
        yield Problem(steps, text)


def read_json(path: Path, limit: int = RECORD) -> Any:
    """Read a JSON file that may be untrusted, with the checks of `loads`.

    Args:
        limit: maximum size of the file in bytes.

    Raises:
        UnreadableFile: the file cannot be read or is not valid JSON; the reason contains the position of the error.
    """
    return parse_json(path, read_file(path, limit))


def parse_json(path: Path, data: bytes) -> Any:
    """Parse the content of a JSON file as `read_json` does."""
    try:
        return loads(data.decode("utf-8"))
    except ValueError as error:
        raise UnreadableFile(path, f"cannot be read as JSON: {error}") from error


def loads(text: str) -> Any:
    """Parse a JSON text that may be untrusted.

    The returned value can be processed recursively and written as JSON again.

    Raises:
        ValueError: the text is not valid JSON, is nested deeper than DEEPEST levels, or contains NaN, infinity, a number out
            of range, an unpaired surrogate or a table with a repeated name.
    """
    try:
        value = json.loads(
            text, parse_constant=_number, parse_float=_number, parse_int=_whole, object_pairs_hook=_table
        )
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    check_depth(value)
    if HALF.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # raises UnicodeEncodeError if the other half is missing
    return value


def check_depth(value: Any) -> None:
    """Raise ValueError if lists and tables are nested more than DEEPEST levels deep."""
    level = [value]
    for _ in range(DEEPEST):
        inner = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, (dict, list)))
        level = [item for items in inner for item in items if isinstance(item, (dict, list))]
    if level:
        raise ValueError(TOO_DEEP)


def _whole(text: str) -> int:
    if len(text) > LONGEST_WHOLE:
        raise ValueError(f"{shortened(text)} is too large for a whole number")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {shortened(text)}")
    return value


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):  # otherwise two readers could use different values of a repeated name
        raise ValueError("the same name occurs twice in one table")
    return table


def intern_values(value: Any) -> Any:
    """Return an equal value. Intern a short string to save memory: many runs contain the same strings."""
    # a digest belongs to one run, so longer strings are not interned
    return sys.intern(value) if type(value) is str and len(value) < DIGEST_LENGTH else value


def byte_count(text: str) -> int:
    """Return the number of bytes of a size with a unit, such as `4GiB` or `500MB`.

    Raises:
        ValueError: the text is no size, or the size is below 1 MiB, such as a number whose unit was forgotten.
    """
    from pydantic import ByteSize

    limits = Limits("at least 1MiB, as a number with a unit such as 4GiB or 500MB", ge=2**20)
    return int(adapter(Annotated[ByteSize, limits]).validate_python(text))


def read_by(convert: Callable[[Any], Any], name: str, json_schema: Any = None) -> Any:
    """Return the pydantic schema of a type with a custom JSON conversion.

    Args:
        convert: function that converts a plain JSON value to the type. If the value is wrong, the function raises ValueError
            with a message for the user.
        name: name of the type in the schema.
        json_schema: pydantic's schema of the JSON form, if the type does not declare this schema itself.
    """
    from pydantic_core import core_schema

    return core_schema.no_info_plain_validator_function(convert, ref=name, json_schema_input_schema=json_schema)


def canonical(value: Any) -> str:
    """Return the canonical JSON text of a value, equal on every machine: sorted keys, no spaces."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def pretty(value: Any) -> str:
    """Return indented, deterministic JSON text. Keys keep their order, and the text ends with a newline."""
    return json.dumps(encode(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def digest_of(value: Any) -> str:
    """Return the SHA-256 (hex) of the canonical JSON text of a value."""
    digest = hashlib.sha256()
    for piece in _pieces(value, IN_PIECES):
        digest.update(piece.encode())
    return digest.hexdigest()


def _pieces(value: Any, levels: int) -> Iterator[str]:
    """Yield the canonical text in pieces, to save memory; only the outer `levels` levels are split."""
    if levels and dataclasses.is_dataclass(value) and not hasattr(value, "__json__"):
        for index, name in enumerate(sorted(field.name for field in dataclasses.fields(value))):
            yield f'{"," if index else "{"}"{name}":'
            yield from _pieces(getattr(value, name), levels - 1)
        yield "}"
    elif levels and isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield "," if index else "["
            yield from _pieces(item, levels - 1)
        yield "]"
    else:
        yield canonical(value)


def file_digest(path: Path) -> str:
    """Return the SHA-256 (hex) of the bytes of a file.

    Raises:
        UnreadableFile: the path is not a readable regular file.
    """
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
