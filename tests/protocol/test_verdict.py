"""Findings to verdict: the truth table, label and exit code."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.verdict import combine_verdicts, exit_code, verdict, verdict_label
from fa_registry.records import OUTCOMES, Flag, Verdict
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
    strict = load_edition("2026-05:strict")
    assert [label(figures, frozen(), strict) for figures in (D1, D2, {})] == ["FAIL(D1)", "FAIL(D2)", "PASS"]


# D3 of 2026-12 with one seed is undecided: these four are of D1 and D2
@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        (D1, "WARN(D1; D3 undecided, above)"),
        (dict(fidelity=0.5), "WARN(D2 noisy; D3 undecided, above)"),
        (D1 | dict(fidelity=0.5), "WARN(D1; D2 noisy; D3 undecided, above)"),
        (D1 | D2 | dict(gain=1e-6), "FAIL(D1+D2; D3 undecided, above)"),
        (D1 | D2, "WARN(D1; D3 undecided, above)"),
        (D2 | dict(gain=None), "INCOMPLETE(D3 undecided, above)"),
    ],
)
def test_truth_table_of_2026_12(figures, expected):
    assert label(figures, frozen(), load_edition("2026-12")) == expected


def findings(**outcomes):
    """D1, D2, D3 with outcomes of the test's choice."""
    audited = judge(record(), frozen(), EDITION).findings
    return [dataclasses.replace(one, outcome=outcomes.get(one.rule, "pass"), state="ODD") for one in audited]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (dict(D1="waived"), "WARN(D1 waived)"),
        (dict(D1="waived", D2="fail"), "WARN(D2; D1 waived)"),
        (dict(D1="fail", D2="fail", D3="waived"), "FAIL(D1+D2; D3 waived)"),
        (dict(D3="waived", D1="error"), "INCOMPLETE(D3 waived)"),
        (dict(D1="error"), "INCOMPLETE"),
        (dict(D1="skipped"), "PASS"),
        (dict(D2="warn"), "WARN(D2 odd)"),
    ],
)
def test_what_each_outcome_makes_of_the_verdict(outcomes, expected):
    assert verdict(record(), findings(**outcomes), EDITION).label == expected


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_only_gating_findings_count(outcome):
    reported = [dataclasses.replace(finding, gating=False) for finding in findings(D1=outcome, D2=outcome, D3=outcome)]
    assert verdict(record(), reported, EDITION).label == "PASS"


def test_a_run_that_was_stopped_early_may_fail_and_never_passes():
    assert label({}, frozen(), status="stopped_early") == "INCOMPLETE"
    assert label(D1, frozen(), status="stopped_early") == "INCOMPLETE(D1)"
    assert label(D1 | D2, frozen(), status="stopped_early") == "FAIL(D1+D2)"


def test_an_editions_labels_take_its_flags():
    assert verdict_label("FAIL", (Flag("D1"), Flag("D3", "waived"))) == "FAIL(D1; D3 waived)"
    assert verdict_label("WARN", (Flag("D3", "undecided", "below"),)) == "WARN(D3 undecided, below)"
    assert verdict_label("needs walk-back:", (Flag("a"), Flag("d"))) == "needs walk-back: a, d"
    assert (verdict_label("needs walk-back:", ()), verdict_label("PASS", ())) == ("needs walk-back", "PASS")


def test_a_row_whose_seeds_have_the_same_verdict_has_this_verdict():
    alike = Verdict("warn", "WARN(D1; method unchecked; metrics not recomputed)")
    flags = (Flag("D1"), Flag("method", "unchecked"), Flag("metrics", "not recomputed"))
    alike = dataclasses.replace(alike, flags=flags, base="WARN")
    assert combine_verdicts([alike, alike]) == alike
    both = combine_verdicts([alike, dataclasses.replace(alike, flags=(Flag("D2"),))])
    assert both.flags == tuple(sorted((*flags, Flag("D2")), key=str))


def test_a_diverged_run_never_passes():
    assert label({}, frozen(), status="diverged") == "DIVERGED"
    assert label(D3, frozen(), status="diverged") == "DIVERGED(D3)"


def test_what_fails_on_a_figure_that_stands_in_for_another_is_marked():
    judged = judge(record(measured=measurements(**D3)), frozen(), EDITION)
    stands_in = [dataclasses.replace(finding, state="PROVISIONAL") for finding in judged.findings]
    assert verdict(judged.record, judged.findings, EDITION).label == "FAIL(D3)"
    assert verdict(judged.record, stands_in, EDITION).label == "FAIL(D3 provisional)"


def test_seeds_combine_to_the_worst_with_every_flag():
    seeds = [
        Verdict("pass", "PASS"),
        Verdict("warn", "WARN(D1)", (Flag("D1"),), "WARN"),
        Verdict("fail", "FAIL(D3)", (Flag("D3"),), "FAIL"),
    ]
    assert combine_verdicts(seeds) == Verdict("fail", "FAIL(D1+D3)", (Flag("D1"), Flag("D3")), "FAIL")
    assert combine_verdicts(seeds[:1]) == Verdict("pass", "PASS")
    assert combine_verdicts([]).outcome == "incomplete"


@pytest.mark.parametrize(
    ("milder", "worse"), list(itertools.pairwise(("control", "pass", "warn", "incomplete", "fail")))
)
def test_a_seed_that_is_worse_is_never_hidden_by_a_milder_one(milder, worse):
    verdicts = [Verdict(outcome, outcome.upper()) for outcome in (milder, worse)]
    assert combine_verdicts(verdicts) == combine_verdicts(verdicts[::-1]) == verdicts[1]


def test_a_label_with_a_parenthesis_keeps_it_when_seeds_combine():
    """The label of an edition is never taken apart: only its flags are added."""
    seeds = [Verdict("warn", f"CHECK (by hand): {code}", (Flag(code),), "CHECK (by hand):") for code in ("D1", "D2")]
    assert combine_verdicts(seeds).label == "CHECK (by hand): D1, D2"


def test_seeds_combine_in_the_editions_wording():
    base = "needs walk-back:"
    seeds = [Verdict("fail", f"{base} {code}", (Flag(code),), base) for code in "da"]
    assert combine_verdicts(seeds) == Verdict("fail", "needs walk-back: a, d", (Flag("a"), Flag("d")), base)
    assert combine_verdicts([Verdict("pass", "trustworthy"), seeds[0]]).label == "needs walk-back: d"
    assert combine_verdicts([Verdict("pass", "trustworthy")]).label == "trustworthy"


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
