"""Editions side by side: a sentence where they differ, naming the findings that make the difference."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.records import EditionReference, Judgement, Reading, SecondOpinion, Verdict
from fa_registry.reporting.sources import SAME_FINDINGS, Opinions, Sources, differences
from tests.reporting.scenes import a_finding

OURS, THEIRS = (EditionReference(name, name, "test", "0" * 64, shipped=False) for name in ("ours", "theirs"))


@pytest.fixture
def compared(group_of):
    def row(report, method):
        sources = Sources.of(report)
        return sources.opinions.compared(group_of(sources, method), "forms/x.html")

    return row


def test_the_leading_edition_comes_first_and_every_other_keeps_its_label(rich, compared):
    assert [edition.name for edition in Opinions.of(rich).editions] == ["2026-11", "2026-05", "2026-04"]
    row = compared(rich, "dfa")
    assert [verdict.label for verdict in row.verdicts] == [
        "WARN(D1; D3 undecided)",
        "FAIL(D1+D3)",
        "needs walk-back: a, d",
    ]


def test_a_converged_network_differs_by_its_reference_alone(rich, compared):
    (why,) = compared(rich, "bp").why
    assert why.subject == "reference"
    ours, published, older = why.clauses
    assert ours.startswith("2026-11: D2 reference validity CONVERGED, passes, required at least 1.28e-05")
    assert "observed 1.00×10⁻⁵ (2 of 2 seeds)." in ours
    assert "2026-05: D2 reference validity AT FLOOR, fires, required at least 1e-07" in published
    assert older.startswith("2026-04: b reference floor AT FLOOR, fires")


def test_where_the_outcomes_agree_there_is_nothing_to_explain(rich, compared):
    row = compared(rich, "fa")
    assert {verdict.outcome for verdict in row.verdicts} == {"fail"} and row.why == ()


def told(ours, theirs):
    return {one.subject: one.clauses for one in differences([(OURS, ours), (THEIRS, theirs)], {})}


def test_one_subject_is_compared_by_different_figures():
    margin = a_finding("D3", "warn", quantity="margin_pp", observed=Reading(2.5), state="UNDECIDED")
    accuracy = a_finding("d", "fail", quantity="accuracy", observed=Reading(0.81), state="UNDERCUT")
    clauses = told([margin], [accuracy])["depth"]
    assert clauses == (
        "ours, mine (own rules): D3 a rule UNDECIDED, warns, required at most 50, observed +2.5\u00a0pp.",
        "theirs, mine (own rules): d a rule UNDERCUT, fires, required at most 50, observed 81.0\u00a0%.",
    )


def test_what_only_one_edition_judges_or_gates_is_said():
    stability = a_finding("c", "fail", quantity="stability_mid", observed=Reading(0.4), state="HIGH")
    assert told([], [stability])["stability"][0] == "ours, mine (own rules) does not judge it."
    reported = dataclasses.replace(stability, outcome="warn", gating=False)
    assert "HIGH, warns, but does not gate" in told([reported], [stability])["stability"][0]


def test_the_worst_seeds_are_counted_with_the_range_of_their_figures():
    fires = [a_finding("D1", observed=Reading(value)) for value in (60.0, 80.0)]
    clauses = told([*fires, a_finding("D1", "pass", observed=Reading(3.0))], [a_finding("D1", "pass")])["scale"]
    assert "observed 60.0 to 80.0 (2 of 3 seeds)." in clauses[0]


def test_a_figure_that_is_missing_is_told_with_its_reason():
    absent = a_finding("D3", "not_applicable", quantity="accuracy", observed=Reading(None, "no control"))
    infinite = a_finding("D1", observed=Reading.of(float("inf")))
    clauses = told([absent, infinite], [])
    assert "observed N/A (no control)." in clauses["depth"][0]
    assert "observed not finite (inf)." in clauses["scale"][0]


def test_editions_that_only_weigh_the_same_findings_otherwise_say_so():
    alike = [a_finding("D1", state="EXPLODED")]
    assert told(alike, alike) == {"verdict": (SAME_FINDINGS,)}


def test_an_edition_that_left_a_run_out_is_no_error(report, compared):
    other = Judgement(report.runs[0].record.run_id, (), Verdict("pass", "fine"))
    row = compared(dataclasses.replace(report, opinions=(SecondOpinion(THEIRS, (other,)),)), "dfa")
    assert [verdict.label for verdict in row.verdicts] == [row.verdicts[0].label, "not judged"]
