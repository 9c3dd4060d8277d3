"""All content of a file of a person or another release is reported in sentences: never a traceback, never a page of it."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fa_registry import bundled_files, jsonio
from fa_registry.audits.reports import load_report
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.protocol.reproduction import load_reference
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.waivers import load_waivers
from fa_registry.records import AuditReport
from fa_registry.studies.study import load_study
from tests.helpers.limited import run_limited
from tests.reporting import sample_reports
from tests.studies.tiny import TINY

LONGEST = 4_000  # characters of any message about a file
HEXADECIMAL = "0x" + "f" * 5000  # a whole number that Python reads and refuses to write
WAIVERS = """[[waiver]]
rule = "D1"
reason = "known"
author = "A. Author"
date = 2026-01-01
expiry = 2026-12-31
run = "abcdef12"
"""
REFERENCE = """title = "t"
source = "s"
[setting.main]
architecture = "resmlp"
dataset = "digits"
epochs = 3
[margin.pp]
value = 0.02
why = "small"
[[table]]
quantity = "accuracy"
method = "bp"
setting = "main"
margin = "pp"
where = "table 1"
figures = [{ value = 0.6 }]
"""
Reader = Callable[[Path], Any]
KINDS: dict[str, tuple[str, Reader]] = {
    "study": (TINY, lambda path: load_study(str(path))),
    "edition": (
        (bundled_files.editions() / "2026-12.toml").read_text(encoding="utf-8").replace('"2026-12"', '"mine"'),
        lambda path: load_edition(str(path)),
    ),
    "waivers": (WAIVERS, lambda path: load_waivers(path, datetime.date(2026, 6, 1))),
    "reference": (REFERENCE, lambda path: load_reference(path.parent)),
}
VALUES = {
    "huge": HEXADECIMAL,
    "more digits than Python reads": "9" * 5000,
    "beyond a float": "9" * 400,
    "infinity": "-inf",
    "no number": "nan",
    "true": "true",
    "text": '"x"',
    "nothing": '""',
    "long": f'"{"x" * 100_000}"',
    "list": "[[], [1], {}]",
    "table": "{ a = { b = 1 } }",
    "date": "2026-01-01T00:00:00Z",
    "deep": "[" * 2000 + "]" * 2000,
    "deep enough to be read": "[" * 100 + "]" * 100,
}


def replaced(text: str, value: str) -> Iterator[str]:
    """The text with `value` in the place of each of its values, one at a time, and once more with an unknown field of it."""
    lines = text.splitlines()
    for place, line in enumerate(lines):
        name, equals, _ = line.partition(" = ")
        if equals and not name.startswith("#"):
            yield "\n".join([*lines[:place], f"{name} = {value}", *lines[place + 1 :]])
    yield f"{'x' * 10_000} = {value}\n{text}"


# one of each type in each suite
OFTEN = ("huge", "infinity", "text", "list", "table", "deep")


@pytest.mark.parametrize(
    "value", [pytest.param(name, marks=[pytest.mark.long] * (name not in OFTEN)) for name in VALUES]
)
@pytest.mark.parametrize("kind", KINDS)
def test_any_value_in_the_place_of_any_other_is_read_or_reported(tmp_path, kind, value):
    text, read = KINDS[kind]
    path = tmp_path / kind / ("study.toml" if kind == "study" else f"{kind}.toml")
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    assert read(path)  # what is spoilt here is a good file
    refusals = 0
    for spoilt in replaced(text, VALUES[value]):
        path.write_text(spoilt, encoding="utf-8")
        try:
            read(path)
        except UsageError as error:
            refusals += 1
            assert str(path) in str(error) or kind in str(error)
            assert len(str(error)) < LONGEST, str(error)[:500]
    assert refusals


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
def test_a_whole_number_of_64_bits_is_read(tmp_path, number):
    (tmp_path / "a.toml").write_text(f"a = [{number}]")
    assert jsonio.read_toml(tmp_path / "a.toml", "a").table == {"a": [number]}


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**63, 10**400], ids=["below", "above", "far above"])
def test_a_longer_whole_number_is_refused(tmp_path, number):
    (tmp_path / "a.toml").write_text(f"a = [{number}]")
    with pytest.raises(UsageError, match=r"a\[0\]: "):
        jsonio.read_toml(tmp_path / "a.toml", "a")


WIDE = "".join(f"{'x' * 5_000}{place} = 1\n" for place in range(100)) + "".join(
    f"y{place} = 1\n" for place in range(3_000)
)


# a study's fields are checked against each plug-in that it names, which takes six times as long
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind == "study")) for kind in KINDS])
def test_a_wide_file_is_reported_in_a_short_message(tmp_path, kind):
    """Thousands of unknown fields in every table of the file, and a list of thousands in the place of every value."""
    text, read = KINDS[kind]
    lines = text.splitlines()
    heads = [place + 1 for place, line in enumerate(lines) if line.startswith("[")][:6]
    spoilt = ["\n".join([*lines[:place], WIDE, *lines[place:]]) for place in (0, *heads)]
    spoilt += list(replaced(text, str(["x" * 5_000, *range(9_999)])))[:20]
    path = tmp_path / kind / ("study.toml" if kind == "study" else f"{kind}.toml")
    path.parent.mkdir()
    refusals = 0
    for one in spoilt:
        path.write_text(one, encoding="utf-8")
        try:
            read(path)
        except UsageError as error:
            refusals += 1
            assert len(str(error)) < LONGEST, str(error)[:500]
    assert refusals > len(heads)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every owner and key inside a JSON value, the first of every list."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in inside:
        yield value, key
        yield from places(item)


DEEP = json.loads("[" * 400 + "]" * 400)


@pytest.fixture(scope="module")
def of_one_run() -> dict[str, Any]:
    full = sample_reports.full_report()
    opinions = tuple(dataclasses.replace(opinion, judgements=opinion.judgements[:1]) for opinion in full.opinions[:1])
    return jsonio.encode(dataclasses.replace(full, runs=full.runs[:1], opinions=opinions, cards={}))


@pytest.mark.parametrize(
    "value", [None, -1, 10**400, 1e400, "x", [1, None], {"x" * 10_000: 1}, DEEP], ids=jsonio.describe_value
)
def test_any_value_in_the_place_of_any_other_of_an_audit_is_read_or_reported(tmp_path, of_one_run, value):
    written = copy.deepcopy(of_one_run)
    path, refusals = tmp_path / "audit.json", 0
    for owner, key in list(places(written)):
        kept, owner[key] = owner[key], value
        path.write_text(json.dumps(written), encoding="utf-8")
        try:
            load_report(path)
        except UsageError as error:
            refusals += 1
            assert str(path) in str(error) and len(str(error)) < LONGEST
        owner[key] = kept
    assert refusals


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"schema": 2, "title": ' + "9" * 5000 + "}", '{"a": "\\ud800', "\x00"]
)
def test_what_cannot_be_parsed_is_reported_of_the_file(tmp_path, text):
    (tmp_path / "audit.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="audit.json: 1 problem\n  - file: "):
        load_report(tmp_path / "audit.json")


READ_REPORT = """
from pathlib import Path
from fa_registry.errors import UsageError
from fa_registry.audits.reports import load_report
"""
REFUSED = """
try:
    load_report(Path({path!r}))
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize("entry", ["1", pytest.param("{}", marks=pytest.mark.long)])
def test_a_report_of_a_million_wrong_entries_is_refused_without_an_error_for_each(tmp_path, of_one_run, entry):
    path = tmp_path / "audit.json"
    text = json.dumps(of_one_run | {"runs": 0})
    path.write_text(text.replace('"runs": 0', f'"runs": [{", ".join([entry] * 1_000_000)}]'), encoding="utf-8")
    ended = run_limited(READ_REPORT, REFUSED.format(path=str(path)))
    assert ended.printed.startswith(f"report {path}: ") and "  - runs[0]" in ended.printed
    assert "runs[1]" not in ended.printed and len(ended.printed) < LONGEST
    assert ended.grown < 512 * 2**20  # one million errors took 2.5 to 3.8 GB


def test_what_is_wrong_behind_a_hundred_thousand_entries_is_refused_too(of_one_run):
    wrong = of_one_run | {"remarks": ["x"] * 100_000 + [3]}
    with pytest.raises(InvalidFields) as caught:
        jsonio.decode(AuditReport, wrong, "report")
    assert caught.value.problems == ("remarks[100000]: expected text, found 3",)


@pytest.mark.long
def test_a_table_of_a_million_wrong_entries_is_refused_without_an_error_for_each(tmp_path, of_one_run):
    path = tmp_path / "audit.json"
    run = of_one_run["runs"][0]
    wrong = run | {"record": run["record"] | {"digests": {f"{n:x}": 1 for n in range(1_000_000)}}}
    path.write_text(json.dumps(of_one_run | {"runs": [wrong]}), encoding="utf-8")
    ended = run_limited(READ_REPORT, REFUSED.format(path=str(path)))
    assert "1,000,000 problems" in ended.printed and len(ended.printed) < LONGEST
    assert ended.grown < 1024 * 2**20
