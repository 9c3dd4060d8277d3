"""The checklist: every item of protocol.md, numbered, runs that are answered alike together, the worst answer first."""

from __future__ import annotations

import dataclasses

from fa_registry.lint.rules import all_rules
from fa_registry.records import Integrity
from fa_registry.reporting.pitfalls import pitfalls
from fa_registry.reporting.pitfalls_words import WORST_FIRST
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
    for state, details in (
        ("verified", ()),
        ("trusted", ()),
        ("mismatch", ("h_norm[0]: logged 1.0, recomputed 2.0", "gamma[1]: logged 1.0, recomputed 0.1")),
    ):
        runs = tuple(
            dataclasses.replace(run, record=dataclasses.replace(run.record, integrity=Integrity(state, details)))
            for run in rich.runs
        )
        outcomes.append([one.outcome for one in checklist(dataclasses.replace(rich, runs=runs))])
    assert [row[0] for row in outcomes] == ["avoided", "unknown", "violated"]
    assert [row[11] for row in outcomes] == ["avoided", "unknown", "violated"]
    assert [row[1] for row in outcomes] == ["avoided", "avoided", "violated"]
