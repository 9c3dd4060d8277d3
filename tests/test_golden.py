"""No number of a built-in member changes under its version: runs of the old number would be taken for runs of the new one."""

from __future__ import annotations

import copy
import json

import pytest

from fa_registry import datasets, methods
from tests import golden

HELD = json.loads(golden.FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found():
    return golden.today()


def test_no_number_changed_under_its_version(found):
    assert golden.problems(HELD, found) == []


def test_every_member_has_numbers(found):
    assert {key for key, entry in found.items() if not entry["numbers"]} == set()
    assert {name for name in datasets.CATALOG.names() if golden.has_files(name)} >= {"mnist", "text"}


def test_the_numbers_see_a_changed_rule(monkeypatch):
    genuine = methods.CATALOG.get("dfa")
    rule = type(genuine).credits
    monkeypatch.setattr(type(genuine), "credits", lambda *given: [1.0001 * credit for credit in rule(*given)])
    changed = {"methods/dfa": {"version": 1, "numbers": golden.of_method("dfa")}}
    (line,) = golden.problems({"methods/dfa": HELD["methods/dfa"]}, changed)
    assert line.startswith("methods/dfa: credit 0")
    assert "under version 1." in line and "version=2" in line


MEMBER = {**HELD["methods/fa"], "version": 1}


def changed(version: int, factor: float) -> dict:
    entry = copy.deepcopy(MEMBER)
    entry["version"] = version
    entry["numbers"]["credit 1"] = [value * factor for value in entry["numbers"]["credit 1"]]
    return {"methods/fa": entry}


@pytest.mark.parametrize(
    ("version", "factor", "line", "refused"),
    [
        (1, 1.0, "", False),
        (1, 1 + 1e-12, "", False),  # another processor's last bits
        (1, 1 + 1e-6, "under version 1. If that was meant, set version=2", True),
        (2, 1 + 1e-6, "version 2 is not written yet", False),
        (2, 1.0, "version 2 is not written yet", False),
        (0, 1.0, "a version never falls", True),
    ],
)
def test_a_number_and_its_version_change_together(version, factor, line, refused):
    held = {"methods/fa": MEMBER}
    found = golden.problems(held, changed(version, factor))
    assert (line in found[0]) if line else found == []
    assert bool(golden.refusals(held, changed(version, factor))) is refused


def test_an_added_number_is_to_be_written_under_the_same_version_and_a_lost_one_is_refused():
    more = {"methods/fa": {**MEMBER, "numbers": {**MEMBER["numbers"], "credit 9": [1.0, 2.0]}}}
    (line,) = golden.problems({"methods/fa": MEMBER}, more)
    assert "is not written yet" in line and golden.refusals({"methods/fa": MEMBER}, more) == []
    (line,) = golden.refusals(more, {"methods/fa": MEMBER})
    assert "(credit 9) under" in line


def test_a_member_that_came_or_went_is_named():
    held = {"methods/fa": MEMBER}
    assert [one.split(":")[0] for one in golden.problems({}, held)] == ["methods/fa"]
    assert [one.split(":")[0] for one in golden.problems(held, {})] == ["methods/fa"]


def test_writing_refuses_what_the_version_does_not_cover(monkeypatch, tmp_path, capsys):
    file = tmp_path / "golden.json"
    file.write_text(json.dumps({"methods/fa": MEMBER}), encoding="utf-8")
    monkeypatch.setattr(golden, "FILE", file)
    monkeypatch.setattr(golden, "today", lambda: changed(1, 1.1))
    assert golden.main(["--write"]) == 1
    assert "under version 1" in capsys.readouterr().err
    assert json.loads(file.read_text()) == {"methods/fa": MEMBER}
    monkeypatch.setattr(golden, "today", lambda: changed(2, 1.1))
    assert golden.main(["--write"]) == 0
    assert json.loads(file.read_text()) == changed(2, 1.1)
