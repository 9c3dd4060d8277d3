"""Types of fields with limits, by which `jsonio` checks what is read and typed.

A type is `typing.Annotated` with a mark that pydantic reads. pydantic is imported when the first value is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar


class FieldProblems(ValueError):
    """Error with the problems of a decoded dataclass, each a tuple (name of the field, text)."""


class Checked:
    """Base of a dataclass whose fields are checked together after each has a valid type."""

    def __post_init__(self):
        if problems := list(self.field_problems()):
            raise FieldProblems(problems)

    def field_problems(self) -> Iterator[tuple[str, str]]:
        """Yield (name of a field, text) for each problem. The name is empty for a problem of the whole object."""
        raise NotImplementedError


class FirstError:
    """Mark of a list in a record that may be untrusted: its validation stops at the first wrong entry.

    A list of a million wrong entries would otherwise take gigabytes.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import FailFast

        return handler.generate_schema(Annotated[source, FailFast()])


Entry = TypeVar("Entry")
Many = Annotated[tuple[Entry, ...], FirstError()]


class Limits:
    """Limits of a field's value.

    Attributes:
        expected: description of the expected value; by default, the message names the limit that the value exceeds.
        limits: the limits, named as in pydantic's `Field`.
    """

    def __init__(self, expected: str = "", **limits: Any):
        self.expected, self.limits = expected, limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import Field
        from pydantic_core import core_schema

        schema = handler.generate_schema(Annotated[source, Field(**self.limits)])
        if self.expected:
            schema = core_schema.custom_error_schema(schema, "limits", custom_error_message=self.expected)
        earlier = handler(source)  # with the limits that the type has already
        is_first = earlier == handler.generate_schema(source)
        return schema if is_first else core_schema.chain_schema([earlier, schema])


class Converted:
    """Mark of a value that a function converts after its type was checked.

    The function raises ValueError if the value is wrong.
    """

    def __init__(self, convert: Callable[[Any], Any]):
        self.convert = convert

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.convert, handler(source))


class Fields:
    """Types of the known fields of a table, whose fields keep their order.

    Attributes:
        types: field name → type, which is neither a tuple nor a dataclass.
        needed: names of the fields that must be present.
        further: type of all other fields.
    """

    def __init__(self, types: Mapping[str, Any], needed: Sequence[str] = (), further: Any = Any):
        self.types, self.needed, self.further = types, needed, further

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(kind), required=name in self.needed)
            for name, kind in self.types.items()
        }
        further = handler.generate_schema(self.further)
        strict = core_schema.CoreConfig(strict=True, allow_inf_nan=False)  # not inherited from the record
        table = core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=further, config=strict)
        return core_schema.no_info_wrap_validator_function(_in_order, table)


def _in_order(table: Any, validate: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the validated table with its fields in the order of the input.

    pydantic would begin with the known fields.
    """
    valid = validate(table)
    return {name: valid[name] for name in table}


Text = Annotated[str, Limits(pattern=r"\S")]  # not blank
Filled = Annotated[tuple[Entry, ...], Limits(min_length=1)]
Positive = Annotated[float, Limits(gt=0)]
