"""Detection of specifications that differ only slightly in numbers.

Each number differs by at most the fraction NEAR, so the settings are practically the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fa_registry.jsonio import is_finite
from fa_registry.records import RunSpec

NEAR = 0.01  # largest difference, as a share of the larger number
SEEDED = ("seed", "weights")  # fields that may differ between the runs of one setting
Differing = dict[str, tuple[float, float]]  # field → its two numbers


class NearSettings:
    """Index that finds judged specifications whose numbers are nearly equal to given numbers.

    Specifications that differ only in the seed count once.
    """

    def __init__(self, specs: Iterable[RunSpec]):
        first_by_seeds: dict[str, RunSpec] = {}
        for spec in specs:
            first_by_seeds.setdefault(spec.seeds, spec)
        self._by_skeleton: dict[tuple[tuple[str, Any], ...], list[tuple[RunSpec, dict[str, Any]]]] = {}
        for spec in first_by_seeds.values():
            fields = dict(_fields(spec))
            self._by_skeleton.setdefault(_skeleton(fields), []).append((spec, fields))
        self._found: dict[str, list[tuple[RunSpec, Differing]]] = {}

    def near(self, spec: RunSpec) -> list[tuple[RunSpec, Differing]]:
        """Return each judged specification near `spec`, with the fields that differ.

        The fields are a mapping from each field to (value in the judged specification, value in `spec`).
        """
        if spec.seeds not in self._found:
            fields = dict(_fields(spec))
            candidates = self._by_skeleton.get(_skeleton(fields), ())
            self._found[spec.seeds] = [
                (judged, differing) for judged, numbers in candidates if (differing := _differing(numbers, fields))
            ]
        return self._found[spec.seeds]


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Differing:
    """Return the differing numbers of two specifications with equal skeletons."""
    # the seed is not a field here, so specifications that differ only in the seed have no differences
    differing = {name: (first[name], second[name]) for name in first if first[name] != second[name]}
    return differing if all(_is_near(*pair) for pair in differing.values()) else {}


def _skeleton(fields: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a specification, with a placeholder for every number."""
    return tuple((name, "number" if is_finite(value) else value) for name, value in fields.items())


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


def _is_near(first: Any, second: Any) -> bool:
    return is_finite(first) and is_finite(second) and abs(first - second) <= NEAR * max(abs(first), abs(second))


def describe_difference(differing: Mapping[str, tuple[float, float]]) -> str:
    """Return e.g. `learning_rate 0.0010000001 instead of 0.001` for the pair (0.001, 0.0010000001)."""
    pairs_by_name = {name.rpartition(".")[2]: pair for name, pair in differing.items()}
    return ", ".join(f"{name} {second!r} instead of {first!r}" for name, (first, second) in pairs_by_name.items())
