"""Schemas of dataclasses: which types they know, where their words come from, and that they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fa_registry import jsonio
from fa_registry.records import Reading, Scalar, Series
from fa_registry.reporting.files.schemas import Knowledge, described, schema_of, within


@dataclass(frozen=True)
class Inner:
    """A part. word: one of two; low and high: the ends."""

    word: str
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Outer:
    """The whole of it.

    count: how many; it is never negative. parts, pair: what it is made of, see Inner.
    anything: whatever
    there is.
    """

    count: int
    parts: tuple[Inner, ...]
    reading: Reading
    row: Series
    flag: bool = False
    pair: tuple[float, float] | None = None
    option: Scalar = 0
    anything: Any = None
    table: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)
    version: int = 7


KNOWN = Knowledge({"Outer.flag": "a flag"}, {"Inner.word": ("a", "b")}, {"Outer.version": 7})
GOOD = jsonio.encode(
    Outer(1, (Inner("a"),), Reading(None, "lost"), Series([Reading(1.0)]), table={"x": (Reading(2.0),)})
)


def refusals(value: Any) -> list[str]:
    validator = Draft202012Validator(schema_of(Outer, KNOWN))
    return [error.json_path for error in validator.iter_errors(value)]


def test_a_schema_is_a_schema_and_takes_what_is_written():
    Draft202012Validator.check_schema(schema_of(Outer, KNOWN))
    assert refusals(GOOD) == []
    assert refusals({**GOOD, "pair": [1.0, 2.0], "option": "text", "anything": {"deep": []}}) == []


def test_a_default_may_be_absent_but_the_version_may_not():
    least = {name: GOOD[name] for name in ("count", "parts", "reading", "row", "version")}
    assert refusals(least) == []
    for name in least:
        assert refusals({key: value for key, value in least.items() if key != name}) == ["$"]


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("count", 1.5, "$.count"),
        ("count", "1", "$.count"),
        ("unknown", 1, "$"),
        ("parts", [{"word": "c"}], "$.parts[0].word"),
        ("parts", [{"word": "a", "more": 1}], "$.parts[0]"),
        ("reading", {"na": ""}, "$.reading"),
        ("reading", {"na": "x", "value": 1}, "$.reading"),
        ("reading", None, "$.reading"),
        ("row", [1.0, None], "$.row[1]"),
        ("flag", 0, "$.flag"),
        ("pair", [1.0], "$.pair"),
        ("option", None, "$.option"),
        ("table", {"x": 1.0}, "$.table.x"),
        ("version", 8, "$.version"),
    ],
)
def test_what_is_not_so_is_refused_in_its_place(name, value, path):
    assert refusals({**GOOD, name: value}) == [path]


def test_words_come_from_the_docstring_then_from_the_table():
    assert described(Inner, KNOWN) == ("A part", {"word": "one of two", "low": "the ends", "high": "the ends"})
    summary, words = described(Outer, KNOWN)
    assert summary == "The whole of it" and words["count"] == "how many; it is never negative"
    assert words["parts"] == words["pair"] == "what it is made of, see Inner"
    assert words["anything"] == "whatever there is" and words["flag"] == "a flag" and words["row"] == ""


def test_every_record_is_found_once():
    assert set(within(Outer)) == {Outer, Inner, Reading, Series} and len(within(Outer)) == 4
