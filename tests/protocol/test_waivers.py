"""Waivers: what a file may hold, whom a waiver reaches, and that it never makes a pass."""

from __future__ import annotations

import datetime

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.protocol.engine import judge, judge_all
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.waivers import load_waivers, unknown_rules, without_runs
from fa_registry.records import Waiver
from tests.builders import frozen, measurements, record

EDITION = load_edition("2026-05")
TODAY = datetime.date(2026, 11, 21)
FIELDS = {
    "rule": '"D3"',
    "run": '"abcdef12"',
    "reason": '"its frozen control was trained on other data"',
    "author": '"Ada"',
    "date": '"2026-11-01"',
    "expiry": '"2026-12-31"',
}


def write(tmp_path, *tables):
    """A waivers.toml of tables, each FIELDS with changes; None leaves a field out."""
    lines = []
    for changes in tables:
        fields = {**FIELDS, **changes}
        lines += ["[[waiver]]", *(f"{name} = {value}" for name, value in fields.items() if value is not None)]
    path = tmp_path / "waivers.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def problems(tmp_path, *tables):
    with pytest.raises(InvalidFields) as caught:
        load_waivers(write(tmp_path, *tables), TODAY)
    return caught.value.problems


def one(tmp_path, **changes):
    return load_waivers(write(tmp_path, changes), TODAY)[0]


def waive(waiver, run=None, edition=EDITION):
    """The audit of a run whose accuracy is below the frozen control's."""
    run = run or record("abcdef1234", measurements(accuracy=0.1))
    return judge_all([run, frozen()], edition, [waiver])[0]


def test_a_waiver_as_it_is_written(tmp_path):
    assert one(tmp_path) == Waiver(
        "D3", FIELDS["reason"].strip('"'), "Ada", "2026-11-01", "2026-12-31", run="abcdef12", expired=False
    )


def test_dates_may_be_tomls_own(tmp_path):
    assert one(tmp_path, date="2026-11-01", expiry="2026-12-31") == one(tmp_path)


@pytest.mark.parametrize(("expiry", "expired"), [("2026-11-20", True), ("2026-11-21", False), ("2026-11-22", False)])
def test_the_last_day_still_counts(tmp_path, expiry, expired):
    assert one(tmp_path, expiry=f'"{expiry}"').expired is expired


def test_no_waivers_is_a_file_too(tmp_path):
    assert load_waivers(write(tmp_path), TODAY) == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(rule=None), "waiver[0].rule:"),
        (dict(reason='"  "'), "waiver[0].reason:"),
        (dict(author='""'), "waiver[0].author:"),
        (dict(author="3"), "waiver[0].author:"),
        (dict(run="3"), "waiver[0].run:"),
        (dict(run=None), "waiver[0].run:"),
        (dict(method='"dfa"'), "waiver[0].run:"),
        (dict(run='"ab"'), "waiver[0].run:"),
        (dict(date=None), "waiver[0].date:"),
        (dict(expiry=None), "waiver[0].expiry:"),
        (dict(expiry='"31.12.2026"'), "waiver[0].expiry:"),
        (dict(expiry='"2026-02-30"'), "waiver[0].expiry:"),
        (dict(expiry='"2026-W48"'), "waiver[0].expiry:"),
        (dict(expiry="20261231"), "waiver[0].expiry:"),
        (dict(date="2026-11-01T10:00:00"), "waiver[0].date:"),
        (dict(expiry='"2026-10-31"'), "waiver[0].expiry:"),
        (dict(reasn='"x"'), "waiver[0].reasn:"),
        (dict(expired="false"), "waiver[0].expired:"),
    ],
)
def test_the_error_for_a_wrong_waiver_says_what_is_wrong(tmp_path, changes, message):
    (problem,) = problems(tmp_path, changes)
    assert problem.startswith(message)


def test_every_wrong_field_of_every_waiver_is_named(tmp_path):
    found = problems(tmp_path, dict(reason=None, date='"x"'), {}, dict(author=None))
    assert {problem.split(":")[0] for problem in found} == {"waiver[0].reason", "waiver[0].date", "waiver[2].author"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("= 3", "not TOML"),
        ("waver = 3", "unknown field 'waver'"),
        ("waiver = 3", "waiver:"),
        ("waiver = [3]", "waiver\\[0\\]:"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, text, message):
    path = tmp_path / "waivers.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFields, match=message):
        load_waivers(path, TODAY)
    with pytest.raises(InvalidFields, match="No such file"):
        load_waivers(tmp_path / "none.toml", TODAY)


def test_a_waived_finding_says_who_when_why_and_until_and_is_never_a_pass(tmp_path):
    audit = waive(one(tmp_path))
    finding = audit.findings[2]
    assert (finding.outcome, finding.state, audit.verdict.label) == ("waived", "UNDERCUT", "WARN(D3 waived)")
    assert all(FIELDS[name].strip('"') in finding.detail for name in ("author", "date", "expiry", "reason"))
    assert "observed 0.1000 against 0.5000" in finding.sentence


def test_an_expired_waiver_does_nothing(tmp_path):
    assert waive(one(tmp_path, expiry='"2026-11-20"')).verdict.label == "FAIL(D3)"


@pytest.mark.parametrize(
    ("changes", "reached"),
    [
        (dict(run='"abcdef1234"'), True),
        (dict(run='"abcdee"'), False),
        (dict(run='"abcdef12345"'), False),
        (dict(run=None, method='"dfa"'), True),
        (dict(run=None, method='"fa"'), False),
        (dict(rule='"D1"'), False),
        (dict(rule='"D9"'), False),
    ],
)
def test_whom_a_waiver_reaches(tmp_path, changes, reached):
    outcome = waive(one(tmp_path, **changes)).findings[2].outcome
    assert outcome == ("waived" if reached else "fail")


def test_a_waiver_for_a_method_does_not_reach_its_penalised_variant(tmp_path):
    penalised = record("abcdef1234", measurements(accuracy=0.1), penalty=0.1)
    for method, outcome in (("dfa", "fail"), ("dfa+pen λ=0.1", "waived")):
        assert waive(one(tmp_path, run=None, method=f'"{method}"'), penalised).findings[2].outcome == outcome


def test_what_passed_or_is_missing_is_not_waived(tmp_path):
    waiver = one(tmp_path, run=None, method='"dfa"')
    assert waive(waiver, record()).verdict.label == "PASS"
    missing = record(measured=measurements(accuracy=None))
    assert waive(waiver, missing).verdict.label == "INCOMPLETE"


def test_an_undecided_finding_can_be_waived_too(tmp_path):
    ours = load_edition("2026-12")
    run = record("abcdef1234")
    assert judge(run, frozen(), ours).verdict.label == "WARN(D3 undecided, above)"
    assert waive(one(tmp_path), run, ours).verdict.label == "WARN(D3 waived)"


def test_a_waiver_for_a_rule_that_no_edition_has_is_remarked(tmp_path):
    waivers = [one(tmp_path), one(tmp_path, rule='"d"'), one(tmp_path, rule='"D33"'), one(tmp_path, rule='"D33"')]
    assert unknown_rules(waivers[:2], [EDITION, load_edition("2026-04")]) == ()
    (remark,) = unknown_rules(waivers, [EDITION, load_edition("2026-04")])
    assert "D33" in remark


def test_a_waiver_of_tomorrow_is_refused(tmp_path):
    assert [one.split(":")[0] for one in problems(tmp_path, dict(date='"2026-11-22"'))] == ["waiver[0].date"]
    assert one(tmp_path, date='"2026-11-21"').date == "2026-11-21"


def test_a_waiver_that_speaks_of_no_run_says_so(tmp_path):
    runs = [record("abcdef1234"), frozen()]
    idle = [one(tmp_path, run=None, method='"dfaa"'), one(tmp_path, run='"123456"')]
    working = [
        one(tmp_path),
        one(tmp_path, run=None, method='"dfa"'),
        one(tmp_path, run='"123456"', expiry='"2026-11-02"'),
    ]
    assert without_runs(working, runs) == ()  # the expired one has its own remark
    method, run = without_runs(idle, runs)
    assert "dfaa" in method and "'dfa'" in method
    assert "123456" in run
