"""Records to JSON and back; canonical text; digests."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
import sys
import tracemalloc
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from fa_registry import jsonio
from fa_registry.bundles.archive import Manifest
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.field_types import Fields, Limits, Many, Text
from fa_registry.records import AuditReport, Conformance, Measurements, Reading, RunSpec, Series
from fa_registry.records.manifest_checks import CONVENTIONS, Provenance
from fa_registry.safe_files import UnreadableFile
from fa_registry.tracking.base import StoredRun


@dataclass(frozen=True)
class Inner:
    number: float
    note: str | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    count: int
    flag: bool
    parts: tuple[Inner, ...] = ()
    table: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    scalar: str | int | float | bool = 0
    word: Literal["left", "right"] = "left"
    switches: Mapping[Literal["on", "off"], bool] = field(default_factory=dict)


FULL = Outer("ü", 3, True, (Inner(0.1), Inner(2.0, "x")), {"b": (1.0, 2.5), "a": ()}, "text")


def test_object_to_json_to_object_is_identical():
    text = jsonio.canonical(FULL)
    again = jsonio.decode(Outer, json.loads(text))
    assert again == FULL
    assert jsonio.canonical(again) == text
    assert jsonio.decode(Outer, json.loads(jsonio.pretty(FULL))) == FULL


def test_canonical_text_sorts_keys_and_holds_no_spaces():
    assert jsonio.canonical({"b": (1, 2.0), "a": None}) == '{"a":null,"b":[1,2.0]}'


def test_equal_values_have_equal_digests_and_others_have_not():
    assert jsonio.digest_of({"a": 1, "b": 2}) == jsonio.digest_of({"b": 2, "a": 1})
    assert jsonio.digest_of({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()
    assert jsonio.digest_of({"a": 1}) != jsonio.digest_of({"a": 2})


@pytest.mark.parametrize("value", [FULL, (FULL, FULL), [], {}, [{"b": [FULL], "a": ()}], "ü", Reading(None, "why")])
def test_the_digest_is_that_of_the_canonical_text(value):
    assert jsonio.digest_of(value) == hashlib.sha256(jsonio.canonical(value).encode()).hexdigest()


def test_the_digest_of_many_records_takes_the_memory_of_one():
    """What an audit of 10,000 runs is signed by: its text has hundreds of megabytes."""
    many = Outer("many", 1000, True, (Inner(1.0, "x" * 1000),) * 1000)
    tracemalloc.start()
    jsonio.digest_of(many)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000 < len(jsonio.canonical(many))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused(number):
    with pytest.raises(ValueError, match="expected a finite number in a record, found .*; use Reading.of"):
        jsonio.canonical({"deep": [{"down": number}]})


def test_an_object_that_is_no_record_is_refused():
    with pytest.raises(TypeError, match="expected a value that JSON can represent, found a set"):
        jsonio.encode({"a": {1, 2}})


def test_unknown_and_missing_fields_are_named_together():
    with pytest.raises(InvalidFields) as caught:
        jsonio.decode(Outer, {"name": "x", "flagg": True})
    assert [one.split(":")[0] for one in caught.value.problems] == ["count", "flag", "flagg"]


def test_what_is_wrong_deeper_down_is_named_with_it():
    with pytest.raises(InvalidFields) as caught:
        jsonio.decode(Outer, {"name": 3, "flagg": True, "flag": 1, "parts": [{"number": "x"}, 4, {"note": 5, "a": 1}]})
    names = [
        "count",
        "parts[2].number",
        "parts[2].a",
        "flagg",
        "name",
        "flag",
        "parts[0].number",
        "parts[1]",
        "parts[2].note",
    ]
    assert [one.split(":")[0] for one in caught.value.problems] == names


def test_thousands_of_problems_are_counted_and_not_listed():
    with pytest.raises(InvalidFields) as caught:
        jsonio.decode(Mapping[str, tuple[float, ...]], {"a": ["x"] * 1234}, "row")
    assert len(caught.value.problems) == 101 and caught.value.problems[-1] == "and 1,134 more problems"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"count": 1.5}, "count: expected a whole number, found 1.5"),
        ({"count": True}, "count: expected a whole number, found True"),
        ({"name": 3}, "name: expected text, found 3"),
        ({"parts": [{"number": "x"}]}, r"parts\[0\].number: expected a finite number, found 'x'"),
        ({"parts": "ab"}, "parts: expected a list, found 'ab'"),
        ({"parts": [3]}, r"parts\[0\]: expected a table, found 3"),
        ({"table": [1]}, r"table: expected a table, found \[1\]"),
        ({"table": {"a": [1, "2"]}}, r"table.a\[1\]: expected a finite number, found '2'"),
        ({"scalar": [1]}, r"scalar: expected text or a whole number or a finite number or true or false, found \[1\]"),
        ({"word": "rigth"}, r"word: unknown value 'rigth' \(did you mean 'right'\?\); known: left, right"),
        ({"word": [1]}, r"word: unknown value '\[1\]'; known: left, right"),
        ({"switches": {"of": True}}, r"switches.of: unknown field 'of' \(did you mean 'off'\?\); known: off, on"),
        ({"switches": {"on": "yes"}}, r"switches.on: expected true or false, found 'yes'"),
        ({"count": [3] * 1000}, r"count: expected a whole number, found \[3, 3, 3, 3, 3, 3, \.\.\.\]"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(change, text):
    with pytest.raises(InvalidFields, match=text):
        jsonio.decode(Outer, {**jsonio.encode(FULL), **change})


def test_a_whole_number_is_a_fine_float():
    assert jsonio.decode(Inner, {"number": 2}) == Inner(2.0)


def test_file_digest(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert jsonio.file_digest(tmp_path / "f") == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize(
    "value", [None, "1", True, {}, {"na": 1}, {"na": ""}, {"na": "x", "more": 2}, [1.0], math.inf, math.nan]
)
def test_what_a_reading_is_not_written_as_is_refused_in_its_place(value):
    with pytest.raises(InvalidFields, match=r'x: expected a number or \{"na": reason\}, found'):
        jsonio.decode(Mapping[str, Reading], {"x": value}, "outer")


def test_a_series_that_is_none_is_refused_without_printing_all_of_it():
    with pytest.raises(
        InvalidFields, match=r'expected a number or \{"na": reason\}, found None at \[10000\]'
    ) as caught:
        jsonio.decode(Series, [1.0] * 10_000 + [None], "row")
    assert len(str(caught.value)) < 300


def test_the_error_without_pydantic_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(UsageError, match="pydantic is needed to read Inner, but is not installed: pip install"):
        jsonio.adapter(Inner)


@pytest.mark.parametrize("value", ["2026-11-30T12:00:00", 20260101, "2026-W48", True, [], "today"])
def test_only_a_day_is_a_date(value):
    with pytest.raises(InvalidFields, match="day: expected a date such as 2026-11-30, found"):
        jsonio.decode(Mapping[Literal["day"], datetime.date], {"day": value})


@pytest.mark.parametrize("value", ["2026-01-01", "[2026-01-01T00:00:00Z]", "12:00:00", "{ b = 2026-01-01 }"])
def test_a_date_is_text_in_no_file(tmp_path, value):
    (tmp_path / "a.toml").write_text(f"a = {value}")
    with pytest.raises(InvalidFields, match=r"a(\[0\]|\.b)?: expected text, a number.*, found the date or time"):
        jsonio.read_toml(tmp_path / "a.toml", "a")


@pytest.mark.parametrize("value", ["nan", "[-inf]", "{ b = inf }"])
def test_a_number_that_is_not_finite_is_in_no_file(tmp_path, value):
    (tmp_path / "a.toml").write_text(f"a = {value}")
    with pytest.raises(InvalidFields, match=r"a(\[0\]|\.b)?: expected a finite number, found (nan|-?inf)"):
        jsonio.read_toml(tmp_path / "a.toml", "a")


@dataclass(frozen=True)
class Untrusted:
    parts: Many[Inner]


def test_the_first_wrong_entry_of_an_untrusted_list_ends_its_validation():
    with pytest.raises(InvalidFields) as caught:
        jsonio.decode(Untrusted, {"parts": [{"number": 1}, {"number": "x"}, 4]})
    assert caught.value.problems == ("parts[1].number: expected a finite number, found 'x'",)


def test_a_table_with_known_fields_keeps_their_order_and_may_have_others():
    hint = Annotated[Mapping[str, Any], Fields({"a": int, "b": list[str]}, needed=["a"])]
    table = {"z": [1.5, None], "b": ["x"], "y": {"c": 1}, "a": 1}
    assert list(jsonio.decode(hint, table).items()) == list(table.items())
    with pytest.raises(InvalidFields) as caught:
        jsonio.decode(hint, {"b": ["x", 3], "z": 1})
    assert caught.value.problems == ("a: missing", "b[1]: expected text, found 3")


@pytest.mark.parametrize("value", [True, 1.0, "1", math.nan, None])
def test_the_known_and_the_further_fields_of_a_table_are_strict(value):
    hint = Annotated[Mapping[str, Any], Fields({"a": int}, further=int)]
    for name in ("a", "b"):
        with pytest.raises(InvalidFields) as caught:
            jsonio.decode(hint, {name: value})
        assert [problem.partition(":")[0] for problem in caught.value.problems] == [name]


def test_a_value_that_is_no_json_is_refused():
    deep: list = []
    for _ in range(400):
        deep = [deep]
    for value in (deep, "\ud800", object()):
        with pytest.raises(InvalidFields, match="record: "):
            jsonio.decode(Mapping[str, Any], {"x": value})


def test_an_unknown_field_in_an_untrusted_list_has_the_names_of_its_entry():
    with pytest.raises(InvalidFields) as caught:
        jsonio.decode(Many[Inner], [{"number": 1}] * 9 + [{"number": 1, "nummer": 2}])
    (problem,) = caught.value.problems
    assert problem.startswith("[9].nummer: unknown field") and "'number'" in problem


def lists_without_the_mark(hint: Any) -> Iterator[str]:
    """Each field of the record `hint`, at any depth, whose list has no mark."""
    seen, waiting = set(), [("root", hint)]
    while waiting:
        place, kind = waiting.pop()
        if kind in seen:
            continue
        if typing.get_origin(kind) is tuple and ... in typing.get_args(kind):
            yield place
        if typing.get_origin(kind) is Annotated and typing.get_origin(kind.__origin__) is tuple:
            kind = typing.get_args(kind.__origin__)[0]
        seen.add(kind)
        waiting += [(place, inner) for inner in typing.get_args(kind) if not isinstance(inner, (str, type(...)))]
        if dataclasses.is_dataclass(kind):
            hints = typing.get_type_hints(kind, include_extras=True)
            waiting += [(f"{kind.__name__}.{name}", inner) for name, inner in hints.items()]


@pytest.mark.parametrize("root", [AuditReport, StoredRun, Manifest, Measurements, RunSpec, Conformance])
def test_every_list_of_a_file_of_a_store_ends_at_its_first_wrong_entry(root):
    assert not list(lists_without_the_mark(root))
    assert list(lists_without_the_mark(Outer)) and not list(lists_without_the_mark(Untrusted))


def test_the_digest_of_a_link_is_nobodys(tmp_path):
    (tmp_path / "real").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UnreadableFile, match="is a link"):
        jsonio.file_digest(tmp_path / "link")


Conventions = Annotated[Mapping[str, Any], Fields(CONVENTIONS)]
SEED = Annotated[int, Limits(ge=0, lt=2**63)]
TYPED = {"seed": SEED, "rate": float, "flag": bool, "word": str, "side": Literal["left", "right"]}


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        *(("seed", "3", 3), ("seed", 3.0, 3), ("seed", np.int64(2**62 + 1), 2**62 + 1), ("seed", np.float64(3), 3)),
        *(("rate", "1e-3", 0.001), ("rate", ".5", 0.5), ("rate", 2, 2.0), ("rate", 0.1 + 0.2, 0.1 + 0.2)),
        *(("flag", "No", False), ("flag", "true", True), ("flag", 1, True), ("flag", False, False)),
        *(("word", 3, "3"), ("word", True, "True"), ("side", "left", "left")),
    ],
)
def test_a_typed_value_becomes_the_value_of_its_type(name, typed, value):
    values, problems = jsonio.parse_fields(TYPED, {name: typed})
    assert problems == [] and values == {name: value} and type(values[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        *(("seed", True), ("seed", -1), ("seed", 1.5), ("seed", "1.5"), ("seed", 2**63), ("seed", None), ("seed", [3])),
        *(
            ("seed", "3.0"),
            ("rate", True),
            ("rate", "nan"),
            ("rate", math.inf),
            ("rate", 10**400),
            ("rate", "much"),
            ("rate", b""),
        ),
        *(("flag", "maybe"), ("flag", 2), ("word", ["a"]), ("side", "middle"), ("sead", 1)),
    ],
)
def test_a_typed_value_that_is_no_value_of_its_type_is_one_problem(name, typed):
    values, (problem,) = jsonio.parse_fields(TYPED, {"word": "x", name: typed})
    assert problem.startswith(f"{name}: ") and values == {"word": "x"} if name != "word" else values == {}


def test_minus_zero_is_zero():
    assert math.copysign(1, jsonio.parse_fields(TYPED, {"rate": "-0.0"})[0]["rate"]) == 1


@pytest.mark.parametrize("value", ["", " ", "ab", "A"])
def test_every_limit_of_a_type_with_several_counts(value):
    several = Annotated[Text, Limits(max_length=1), Limits("lower case", pattern="^[a-z ]*$")]
    assert jsonio.try_decode(several, "a") == ("a", [])
    assert len(jsonio.try_decode(several, value)[1]) == 1


CODE = {"methods/dfa": {"version": 1}}


@pytest.mark.parametrize(
    ("kind", "good", "wrong", "place"),
    [
        (Conventions, {"chance": 3}, {"chance": "0.1"}, "chance"),
        (Conventions, {"chance": 0.1}, {"chance": True}, "chance"),
        (
            Conventions,
            {"test_samples": 100, "test_samples_in_train": 0},
            {"test_samples_in_train": "2"},
            "test_samples_in",
        ),
        (Conventions, {"nudge_step": 0.1}, {"nudge_step": -0.1}, "nudge_step"),
        (Conventions, {"g_norm_mean_ce_samples": 128}, {"g_norm_mean_ce_samples": 1.5}, "g_norm"),
        (Provenance, {"code": CODE}, {"code": {**CODE, "datasets/digits": "1"}}, "code.datasets/digits"),
        (Provenance, {"own_loop": {}}, {"own_loop": {"epoch_weights": "aaa"}}, "own_loop.epoch_weights"),
        (
            Provenance,
            {"own_loop": {"epoch_weights": ["a"]}},
            {"own_loop": {"epoch_weights": [1]}},
            "own_loop.epoch_weights",
        ),
    ],
)
def test_a_recorded_fact_that_a_rule_reads_has_its_type(kind, good, wrong, place):
    assert jsonio.try_decode(kind, good) == (good, [])
    assert jsonio.try_decode(kind, wrong)[1][0].startswith(place)
