"""Findings to verdict: the truth table, label and exit code."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.verdict import combined, exit_code
from fa_registry.records import Verdict
from tests.builders import frozen, measurements, record

EDITION = load_edition("2026-05")
D1, D2, D3 = dict(growth=1e3), dict(g_norm=1e-6), dict(accuracy=0.1)


def label(figures: dict, control=None, edition=EDITION, status="complete") -> str:
    return judge(record(measured=measurements(**figures), status=status), control, edition).verdict.label


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, "PASS"),
        (D1, "WARN(D1)"),
        (D2, "WARN(D2)"),
        (D1 | D2, "FAIL(D1+D2)"),
        (D3, "FAIL(D3)"),
        (D1 | D3, "FAIL(D1+D3)"),
        (D2 | D3, "FAIL(D2+D3)"),
        (D1 | D2 | D3, "FAIL(D1+D2+D3)"),
    ],
)
def test_truth_table_of_2026_05(figures, expected):
    assert label(figures, frozen()) == expected


@pytest.mark.parametrize(
    ("figures", "expected"), [({}, "INCOMPLETE"), (D1, "INCOMPLETE(D1)"), (D1 | D2, "FAIL(D1+D2)")]
)
def test_without_a_frozen_accuracy_nothing_passes(figures, expected):
    assert label(figures) == expected


def test_strict_fails_on_any_flag():
    strict = dataclasses.replace(EDITION, strict=True)
    assert [label(figures, frozen(), strict) for figures in (D1, D2, {})] == ["FAIL(D1)", "FAIL(D2)", "PASS"]


def test_a_diverged_run_never_passes():
    assert label({}, frozen(), status="diverged") == "DIVERGED"
    assert label(D3, frozen(), status="diverged") == "DIVERGED(D3)"


def test_seeds_combine_to_the_worst_with_every_flag():
    seeds = [Verdict("pass", "PASS"), Verdict("warn", "WARN(D1)", ("D1",)), Verdict("fail", "FAIL(D3)", ("D3",))]
    assert combined(seeds) == Verdict("fail", "FAIL(D1+D3)", ("D1", "D3"))
    assert combined(seeds[:1]) == Verdict("pass", "PASS")
    assert combined([]).outcome == "incomplete"


@pytest.mark.parametrize(
    ("outcomes", "tampered", "code"),
    [
        (["pass", "warn"], False, 0),
        (["pass", "fail"], False, 1),
        (["fail", "incomplete"], False, 3),
        (["pass"], True, 3),
    ],
)
def test_exit_code(outcomes, tampered, code):
    assert exit_code([Verdict(outcome, "") for outcome in outcomes], tampered) == code
