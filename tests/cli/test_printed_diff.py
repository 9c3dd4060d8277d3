"""What a difference looks like in the terminal."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fa_registry.cli.diffing import diffed
from fa_registry.reporting.diff import audit_diff
from tests.reporting.runs import HOSTILE, SEEDS, diverged, make_record
from tests.reporting.scenes import make_report

DFA = [make_record("dfa", seed, 0.90, 3.0, 0.1, 0.1) for seed in SEEDS]


@pytest.fixture
def printed(capsys):
    """What is printed of the difference of two audits of these records."""

    def show(a, b, as_json: bool = False) -> str:
        diffed(audit_diff(a, b), ("before", "after/audit.json"), as_json)
        return capsys.readouterr().out

    return show


def test_identical_and_the_same_are_told_apart(printed):
    audit = make_report(DFA)
    text = printed(audit, audit)
    assert "A: before: digits, first audit" in text and "B: after/audit.json: " in text
    assert text.endswith("identical: 2 runs, every record the same\n")
    again = make_report([dataclasses.replace(one, run_id=one.run_id[::-1]) for one in DFA])
    assert printed(audit, again).endswith(
        "the same: 2 runs, 2 of them under another run id; no finding or figure differs\n"
    )


def test_verdicts_findings_and_figures_have_their_tables(printed):
    text = printed(make_report(DFA), make_report([diverged(DFA[0]), DFA[1]]))
    for title in ("By rule", "Verdicts", "Findings judged otherwise", "Headline figures", "Other fields of runs"):
        assert title in text
    assert "fail EXPLODED" in text and "N/A (not finite (inf))" in text and HOSTILE in text
    assert "Only in" not in text and "h_norm[" not in text


def test_runs_of_one_side_are_listed(printed):
    text = printed(make_report(DFA[:1]), make_report(DFA[1:]))
    assert "Only in A" in text and "Only in B" in text and DFA[1].run_id[:8] in text
    assert "0 of 0 runs of both changed; 1 only in A, 1 only in B" in text


def test_a_rule_of_one_edition_alone_is_one_line_not_one_a_run(printed):
    text = printed(make_report(DFA), make_report(DFA, "2026-11"))
    assert "D4 credit distribution" in text and "gamma_null_p" not in text


def test_a_field_that_all_runs_share_is_one_line(printed):
    moved = [dataclasses.replace(one, setting="elsewhere", digests={"a": one.run_id}) for one in DFA]
    text = printed(make_report(DFA), make_report(moved))
    (setting,) = [line for line in text.splitlines() if "│ setting " in line]
    (digests,) = [line for line in text.splitlines() if "│ digests a" in line]
    assert "elsewhere" in setting and setting.rstrip("│ ").endswith("2") and "not the same for all" in digests


def test_json_is_the_record(printed):
    found = json.loads(printed(make_report(DFA), make_report([diverged(DFA[0]), DFA[1]]), as_json=True))
    assert found["same"] is False and found["runs"][0]["run_id_a"] == DFA[0].run_id
