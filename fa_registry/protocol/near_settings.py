"""Detection of specifications that differ only slightly in numbers.

Each number differs by at most the fraction NEAR, so the settings are practically the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fa_registry.records import RunSpec

NEAR = 0.01  # largest difference, as a share of the larger number
SEEDED = ("seed", "weights")  # fields that may differ between the runs of one setting


def differing_numbers(spec: RunSpec, other: RunSpec) -> dict[str, tuple[float, float]]:
    """Return a mapping field → (number of `spec`, number of `other`) for the fields that differ.

    Return an empty mapping if another field differs, or if a number differs by more than the fraction NEAR.
    """
    first, second = dict(_fields(spec)), dict(_fields(other))
    if first.keys() != second.keys():
        return {}
    # the seed is not a field here, so specifications that differ only in the seed have no differences
    differing = {name: (first[name], second[name]) for name in first if first[name] != second[name]}
    return differing if all(_is_near(*pair) for pair in differing.values()) else {}


def skeleton(spec: RunSpec) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a specification, with a placeholder for every number."""
    return tuple((name, "number" if _is_number(value) else value) for name, value in _fields(spec))


def by_skeleton(specs: Iterable[RunSpec]) -> Mapping[tuple[tuple[str, Any], ...], list[RunSpec]]:
    """Group specifications by skeleton.

    Of the specifications with the same method and setting, which differ only in the seed, only the first is included.
    """
    specs_by_skeleton: dict[tuple[tuple[str, Any], ...], dict[str, RunSpec]] = {}
    for spec in specs:
        specs_by_skeleton.setdefault(skeleton(spec), {}).setdefault(spec.seeds, spec)
    return {key: list(similar_specs.values()) for key, similar_specs in specs_by_skeleton.items()}


def _fields(spec: RunSpec) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name == "recipe":
            yield from (("recipe." + name, item_value) for name, item_value in vars(value).items())
        elif isinstance(value, Mapping):
            yield from ((f"{field.name}.{name}", item_value) for name, item_value in sorted(value.items()))
        elif field.name not in SEEDED:
            yield field.name, value
    yield "adopted", bool(spec.weights)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_near(first: Any, second: Any) -> bool:
    return _is_number(first) and _is_number(second) and abs(first - second) <= NEAR * max(abs(first), abs(second))


def describe_difference(differing: Mapping[str, tuple[float, float]]) -> str:
    """Return a text such as `learning_rate 0.0010000001 instead of 0.001`.

    The number of the other specification comes first.
    """
    pairs_by_name = {name.rpartition(".")[2]: pair for name, pair in differing.items()}
    return ", ".join(f"{name} {second!r} instead of {first!r}" for name, (first, second) in pairs_by_name.items())
