"""The published schemas: as the records are now, true of every audit that is written, and closed to anything else."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fa_registry import jsonio
from fa_registry.protocol.reproduction import reproduction
from fa_registry.records import AuditReport, Published, Reading, Reference, Series
from fa_registry.reporting.diff import audit_diff
from fa_registry.reporting.files.schemas import (
    CHOICES,
    CONSTANTS,
    KNOWLEDGE,
    MEANINGS,
    OWN,
    Knowledge,
    audit_schema,
    described,
    main,
    published,
    within,
)
from fa_registry.reporting.render import write_report
from tests.protocol.reproduction.builders import figure
from tests.reporting import scenes
from tests.reporting.runs import HOSTILE, SEEDS, make_record

DOCS = Path(__file__).resolve().parents[2] / "docs"
AUDIT = Draft202012Validator(audit_schema())
NOTHING = Knowledge({}, {}, {})
SCENES = ("small", "full", "empty", "bare", "reproduced", "overridden", "hostile")


def scene(name: str) -> AuditReport:
    """An audit of its kind; small: diverged and half-written runs; full: opinions, waivers, crashes."""
    small = scenes.small_report()
    record = small.runs[0].record
    if name == "full":
        return scenes.full_report()
    if name == "empty":
        return dataclasses.replace(small, runs=(), excluded=(), remarks=(), cards={})
    if name == "bare":
        measured = dataclasses.replace(record.measurements, sites={}, scalars={}, conventions={})
        bare = dataclasses.replace(record, status="failed", trajectory={}, provenance={}, measurements=measured)
        return scenes.make_report([bare])
    if name == "reproduced":
        figures = (figure(Published(mean=0.9, std=0.1, n=3), 0.5), figure(0.3, not_measured="why", method="ep"))
        return dataclasses.replace(small, reproduction=reproduction(Reference("s", "t", "d", figures), small))
    if name == "overridden":
        edition = dataclasses.replace(small.edition, overrides={"D1.threshold": 600})
        return dataclasses.replace(small, edition=edition)
    if name == "hostile":
        rows = {"h_L": Series([Reading(1.0), Reading.of(float("nan"))])}
        hostile = dataclasses.replace(record, name=f"{HOSTILE}\udc80\x00", setting="‖h‖\n", trajectory=rows)
        return scenes.make_report([hostile])
    return small


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    return jsonio.encode(scene("full"))


def test_the_published_files_are_those_of_the_records():
    for name, text in published().items():
        stale = f"docs/{name} is stale: run python -m fa_registry.reporting.files.schemas"
        assert (DOCS / name).read_text(encoding="utf-8") == text, stale


def test_the_command_writes_them_and_says_where(tmp_path, capsys):
    main(["--out", str(tmp_path)])
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in published()]
    assert json.loads((tmp_path / "audit.schema.json").read_text(encoding="utf-8")) == audit_schema()


@pytest.mark.parametrize("name", ["audit.schema.json", "diff.schema.json"])
def test_they_are_schemas_in_which_every_record_is_closed(name):
    schema = json.loads(published()[name])
    Draft202012Validator.check_schema(schema)
    records = [one for one in schema["$defs"].values() if "properties" in one]
    assert len(records) > 5 and all(one["additionalProperties"] is False for one in records)


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


def test_a_missing_field_is_refused(written):
    for name in ("title", "selection", "edition", "runs", "schema"):
        assert not AUDIT.is_valid({key: value for key, value in written.items() if key != name})


def test_a_difference_is_valid_by_its_schema():
    validator = Draft202012Validator(json.loads(published()["diff.schema.json"]))
    one = scenes.make_report([make_record("dfa", seed, 0.8, 3.0, 0.1, 0.1) for seed in SEEDS])
    for a, b in ((scene("small"), scene("full")), (one, scene("overridden")), (one, one)):
        assert list(validator.iter_errors(jsonio.encode(audit_diff(a, b)))) == []


RECORDS = [kind for kind in within(AuditReport) if kind not in OWN]


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_field_has_words_and_has_them_once(kind):
    summary, words = described(kind, KNOWLEDGE)
    assert summary and [name for name, text in words.items() if not text] == []
    own = described(kind, NOTHING)[1]
    assert [name for name, text in own.items() if text and f"{kind.__name__}.{name}" in MEANINGS] == []


def test_the_tables_speak_of_fields_that_exist():
    kinds = {
        kind.__name__: kind
        for kind in (*within(AuditReport), *within(type(audit_diff(scene("small"), scene("small")))))
    }
    for name in (*MEANINGS, *CHOICES, *CONSTANTS):
        record, _, field = name.partition(".")
        assert not field or field in {one.name for one in dataclasses.fields(kinds[record])}, name
