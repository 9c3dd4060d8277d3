"""The checklist: every item of protocol.md, numbered, runs that are answered alike together, the worst answer first."""

from __future__ import annotations

import dataclasses

from fa_registry.lint.rules import all_rules
from fa_registry.protocol.integrity import compare
from fa_registry.records import FigureDifference, Integrity, Reading
from fa_registry.reporting.pitfalls import WORST_FIRST, pitfalls
from fa_registry.reporting.sources import Sources


def checklist(report, method="dfa"):
    sources = Sources.of(report)
    return pitfalls(next(group for group in sources.groups if group.method == method), sources)


def test_all_twelve_are_answered_for_every_run(report, rich):
    for audit in (report, rich):
        for group in Sources.of(audit).groups:
            found = pitfalls(group, Sources.of(audit))
            assert [one.number for one in found] == list(range(1, 13))
            ids = sorted(run.record.run_id for run in group.runs)
            for one in found:
                assert sorted(run_id for answer in one.answers for run_id in answer.run_ids) == ids
                assert all(answer.evidence and answer.outcome in WORST_FIRST for answer in one.answers)


def test_runs_that_differ_are_told_apart_and_the_worst_comes_first(rich):
    changed = tuple(
        dataclasses.replace(run, record=dataclasses.replace(run.record, feedback={}))
        if run.record.spec.method == "dfa" and run.record.spec.seed == 123
        else run
        for run in rich.runs
    )
    saved = checklist(dataclasses.replace(rich, runs=changed))[6]
    assert [answer.outcome for answer in saved.answers] == ["violated", "avoided"] and saved.outcome == "violated"
    assert checklist(rich)[6].outcome == "avoided"


def test_what_lint_finds_in_code_names_its_rule(rich):
    codes = {one.number: one.lint for one in checklist(rich) if one.lint}
    assert codes == {number: f"FA00{number}" for number in (1, 2, 3, 7, 8)}
    assert set(codes.values()) <= {rule.card.code for rule in all_rules()}


def test_no_answer_is_always_the_same(rich):
    """Measured again, trusted, and found to differ: each changes what can be known."""
    outcomes = []
    for state, differing in (("verified", ()), ("trusted", ()), ("mismatch", ("h_norm", "gamma"))):
        differences = tuple(FigureDifference(name, 0, Reading(1.0), Reading(2.0)) for name in differing)
        held = Integrity(state, differences=differences)
        runs = tuple(
            dataclasses.replace(run, record=dataclasses.replace(run.record, integrity=held)) for run in rich.runs
        )
        outcomes.append([one.outcome for one in checklist(dataclasses.replace(rich, runs=runs))])
    assert [row[0] for row in outcomes] == ["avoided", "unknown", "violated"]
    assert [row[11] for row in outcomes] == ["avoided", "unknown", "violated"]
    assert [row[1] for row in outcomes] == ["avoided", "avoided", "violated"]


def test_every_figure_that_does_not_come_out_again_is_asked_for_not_the_first_few(rich):
    """The words name five differences; gain and Γ are measured late, and stand behind all of them."""
    dfa = next(run for run in rich.runs if run.record.spec.method == "dfa" and run.record.spec.control == "none")
    figures = dfa.record.measurements
    late = {name: tuple(Reading(one.value * 1.5) for one in figures.sites[name]) for name in ("gain", "gamma")}
    early = {name: tuple(Reading(one.value * 1.5) for one in figures.sites[name]) for name in ("rho_bp", "nudge")}
    logged = dataclasses.replace(figures, sites={**early, **late})
    again = dataclasses.replace(figures, sites={name: figures.sites[name] for name in logged.sites})
    held = compare(logged, again)
    assert not any("gain" in line or "gamma" in line for line in held.details)
    run = dataclasses.replace(dfa, record=dataclasses.replace(dfa.record, integrity=held))
    runs = tuple(run if one is dfa else one for one in rich.runs)
    norms, cosines, *_ = checklist(dataclasses.replace(rich, runs=runs))
    assert (norms.outcome, cosines.outcome) == ("violated", "violated")
    assert "gain[0]: logged " in norms.answers[0].evidence and "gamma[0]: logged " in cosines.answers[0].evidence


def test_what_is_no_figure_is_no_figure_that_came_out_otherwise(rich):
    """A feedback that is no draw of the seed says nothing of the mode in which the figures were measured."""
    held = Integrity("mismatch", ("feedback: B_01 is no draw of seed 42",))
    runs = tuple(dataclasses.replace(run, record=dataclasses.replace(run.record, integrity=held)) for run in rich.runs)
    modes = checklist(dataclasses.replace(rich, runs=runs))[11]
    assert modes.outcome == "unknown"
