"""Schemas of dataclasses: which types they know, where their words come from, and that they refuse."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator

from fa_registry import jsonio
from fa_registry.protocol.reproduction import reproduction
from fa_registry.records import AuditReport, Published, Reading, Reference, Scalar, Series
from fa_registry.reference.schemas import audit_schema, diff_schema, schema_of
from fa_registry.reporting.diff import audit_diff
from fa_registry.reporting.files.audit_json import write_report
from tests.protocol.reproduction.builders import figure
from tests.reporting import sample_reports
from tests.reporting.runs import HOSTILE, SEEDS, make_record


@dataclass(frozen=True)
class Inner:
    """A part."""

    word: Literal["a", "b"]
    """one of
    two
    """
    low: float = 0.0
    """where it begins"""


@dataclass(frozen=True)
class Outer:
    """The whole,
    with parts.
    """

    count: int
    """how many"""
    parts: tuple[Inner, ...]
    reading: Reading
    row: Series
    flag: bool = False
    pair: tuple[float, float] | None = None
    option: Scalar = 0
    anything: Any = None
    table: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)
    schema: Literal[7] = 7


SCHEMA_OF_OUTER = schema_of(Outer, "the whole")
GOOD = jsonio.encode(
    Outer(1, (Inner("a"),), Reading(None, "lost"), Series([Reading(1.0)]), table={"x": (Reading(2.0),)})
)


def refusals(value: Any) -> list[str]:
    validator = Draft202012Validator(SCHEMA_OF_OUTER)
    return [error.json_path for error in validator.iter_errors(value)]


def test_a_schema_is_a_schema_and_takes_what_is_written():
    Draft202012Validator.check_schema(SCHEMA_OF_OUTER)
    assert refusals(GOOD) == []
    assert refusals({**GOOD, "pair": [1.0, 2.0], "option": "text", "anything": {"deep": []}}) == []


def test_a_default_may_be_absent_but_the_version_may_not():
    least = {name: GOOD[name] for name in ("count", "parts", "reading", "row", "schema")}
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
        ("schema", 8, "$.schema"),
    ],
)
def test_what_is_not_so_is_refused_in_its_place(name, value, path):
    assert refusals({**GOOD, name: value}) == [path]


def test_descriptions_are_those_of_the_record_and_of_the_field():
    outer, inner = (SCHEMA_OF_OUTER["$defs"][name] for name in ("Outer", "Inner"))
    assert outer["description"] == "The whole, with parts" and "title" not in outer
    assert outer["properties"]["count"] == {"description": "how many", "type": "integer"}
    assert inner["properties"]["word"]["description"] == "one of two"
    assert inner["properties"]["low"] == {"description": "where it begins", "type": "number", "default": 0.0}


def test_every_record_is_found_once():
    assert list(SCHEMA_OF_OUTER["$defs"]) == ["Inner", "Outer", "Reading", "Series"]


AUDIT = Draft202012Validator(audit_schema())
SCENES = ("small", "full", "empty", "bare", "reproduced", "overridden", "hostile")


def scene(name: str) -> AuditReport:
    """An audit of its kind; small: diverged and half-written runs; full: opinions, waivers, crashes."""
    small = sample_reports.small_report()
    record = small.runs[0].record
    if name == "full":
        return sample_reports.full_report()
    if name == "empty":
        return dataclasses.replace(small, runs=(), excluded=(), remarks=(), cards={})
    if name == "bare":
        measured = dataclasses.replace(record.measurements, sites={}, scalars={}, conventions={})
        bare = dataclasses.replace(record, status="failed", trajectory={}, provenance={}, measurements=measured)
        return sample_reports.make_report([bare])
    if name == "reproduced":
        figures = (figure(Published(mean=0.9, std=0.1, n=3), 0.5), figure(0.3, not_measured="why", method="ep"))
        return dataclasses.replace(small, reproduction=reproduction(Reference("s", "t", "d", figures), small))
    if name == "overridden":
        edition = dataclasses.replace(small.edition, overrides={"D1.threshold": 600})
        return dataclasses.replace(small, edition=edition)
    if name == "hostile":
        rows = {"h_L": Series([Reading(1.0), Reading.of(float("nan"))])}
        hostile = dataclasses.replace(record, name=f"{HOSTILE}\x00", setting="‖h‖\n", trajectory=rows)
        return sample_reports.make_report([hostile])
    return small


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    return jsonio.encode(scene("full"))


@pytest.mark.parametrize("schema", [audit_schema(), diff_schema()], ids=["audit", "diff"])
def test_they_are_schemas_in_which_every_record_is_closed(schema):
    Draft202012Validator.check_schema(schema)
    records = [one for one in schema["$defs"].values() if "properties" in one]
    assert len(records) > 5 and all(record["additionalProperties"] is False for record in records)


@pytest.mark.parametrize("name", SCENES)
def test_every_audit_is_valid_and_goes_there_and_back_unchanged(name, tmp_path):
    report = scene(name)
    write_report(report, tmp_path / "audit.json")
    text = (tmp_path / "audit.json").read_text("utf-8")
    assert list(AUDIT.iter_errors(json.loads(text))) == []
    again = jsonio.decode(AuditReport, json.loads(text))
    assert again == report
    write_report(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "audit.json").read_bytes()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("schema",), 1),
        (("title",), None),
        (("more",), 1),
        (("edition", "overrides"), []),
        (("runs", 0, "verdict", "outcome"), "fine"),
        (("runs", 0, "findings", 0, "outcome"), "passed"),
        (("runs", 0, "findings", 0, "observed"), "1.0"),
        (("runs", 0, "findings", 0, "site"), 1.5),
        (("runs", 0, "record", "status"), "running"),
        (("runs", 0, "record", "integrity", "state"), "fine"),
        (("runs", 0, "record", "spec", "seed"), "42"),
        (("runs", 0, "record", "spec", "recipe", "lr"), 0.1),
        (("runs", 0, "record", "measurements", "scalars", "accuracy"), None),
        (("runs", 0, "record", "trajectory", "h_L", 0), {"na": ""}),
        (("waivers", 0, "expired"), "no"),
        (("opinions", 0, "judgements", 0, "findings"), {}),
    ],
)
def test_a_changed_file_is_refused(place, value, written):
    changed = copy.deepcopy(written)
    *path, last = place
    owner = changed
    for step in path:
        owner = owner[step]
    owner[last] = value
    assert [error.absolute_path for error in AUDIT.iter_errors(changed)]


@pytest.mark.long
def test_a_missing_field_is_refused(written):
    for name in ("title", "selection", "edition", "runs", "schema"):
        assert not AUDIT.is_valid({key: value for key, value in written.items() if key != name})


def test_a_difference_is_valid_by_its_schema():
    validator = Draft202012Validator(diff_schema())
    one = sample_reports.make_report([make_record("dfa", seed, 0.8, 3.0, 0.1, 0.1) for seed in SEEDS])
    for a, b in ((scene("small"), scene("full")), (one, scene("overridden")), (one, one)):
        assert list(validator.iter_errors(jsonio.encode(audit_diff(a, b)))) == []


@pytest.mark.parametrize("schema", [audit_schema(), diff_schema()], ids=["audit", "diff"])
def test_every_record_and_every_field_has_a_description(schema):
    silent = [name for name, record in schema["$defs"].items() if not record["description"]]
    silent += [
        f"{name}.{field}"
        for name, record in schema["$defs"].items()
        for field, kind in record.get("properties", {}).items()
        if not kind["description"]
    ]
    assert silent == []
