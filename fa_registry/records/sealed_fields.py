"""provenance.json and feedback/card.json hold whatever a release wrote; the fields that are read again have these types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import join_names

Is = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64


def is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def is_answer(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def is_list_of(kind: Is) -> Is:
    return lambda value: isinstance(value, (list, tuple)) and all(map(kind, value))


def is_nothing_or(kind: Is) -> Is:
    return lambda value: value is None or kind(value)


def is_table_of(kind: Is) -> Is:
    return lambda value: is_table(value) and all(map(kind, value.values()))


TEXTS = (
    *("status", "ended_by", "stop_on", "study", "method", "setting", "initial_weights", "final_weights"),
    *("commit", "dataset_digest", "stepping"),
)
PROVENANCE: Mapping[str, Is] = {
    **dict.fromkeys(TEXTS, is_text),
    **dict.fromkeys(("epochs_run", "resumed_from", "threads", "parameters", "points"), is_whole),
    "charts": is_list_of(is_text),
    "code": is_table,
    "conformance": is_table,
    "digests": is_table_of(is_text),
    "dirty": is_answer,
    "eval_indices": is_nothing_or(is_list_of(is_whole)),  # of what has no evaluation batch
    "hardware": is_table,
    "origin": is_table_of(is_text),
    "own_loop": is_table,
    "versions": is_table_of(is_text),
}
FEEDBACK: Mapping[str, Is] = {"sha256": is_text, "tensors": is_table_of(is_list_of(is_whole))}


def check(name: str, fields: Mapping[str, Is], held: Any) -> None:
    """Raise ValueError unless `held` is a table whose fields, as far as it has them, are of their types."""
    if not is_table(held):
        raise ValueError(f"{name}: expected a table, found {jsonio.found(held)}")
    wrong = [field for field, is_so in fields.items() if field in held and not is_so(held[field])]
    if wrong:
        raise ValueError(
            f"{name}: {join_names([f'{field} = {jsonio.found(held[field])}' for field in wrong])} cannot be"
        )
