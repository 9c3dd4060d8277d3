"""What differs in the specifications of the columns of a comparison, and nothing of what is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fa_registry import jsonio
from fa_registry.protocol.grouping import Group
from fa_registry.reporting.compare_parts import ComparedField

NO_FIELD = "—"
OF_A_METHOD = ("method", "method_options", "penalty", "control", "seed", "weights", "recipe.credit_norm")


def differing_fields(columns: Sequence[Group]) -> tuple[ComparedField, ...]:
    """Every field whose values are not the same in all columns; the seeds of a column as one list."""
    flat = [dict(_flat(_fields(column))) for column in columns]
    named = dict.fromkeys(name for fields in flat for name in fields)
    made = (ComparedField(name, tuple(fields.get(name, NO_FIELD) for fields in flat)) for name in named)
    return tuple(field for field in made if len(set(field.values)) > 1)


def of_setting(field: ComparedField) -> bool:
    """Whether runs that differ in it are not comparable."""
    return field.field not in OF_A_METHOD and not field.field.startswith("method_options.")


def _fields(column: Group) -> dict[str, Any]:
    seeds = ", ".join(str(run.record.spec.seed) for run in column.runs)
    return {**jsonio.encode(column.runs[0].record.spec), "seed": seeds}


def _flat(fields: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, value in words)."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", str(value).lower() if isinstance(value, bool) else str(value)
