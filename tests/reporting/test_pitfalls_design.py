"""Pitfalls of setting runs side by side: the control's setting, and the seeds of the other methods."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.records import Choice, Exclusion, OtherRun
from fa_registry.reporting import pitfalls as questions
from fa_registry.reporting.pitfalls import Asked
from fa_registry.reporting.sources import Sources
from tests.reporting.asking import asked, changed, run_of


def test_the_control_of_the_same_setting_seed_and_data(rich):
    assert questions.own_control(asked(rich, run_of(rich)))[0] == "avoided"


@pytest.mark.parametrize(
    ("change", "what"),
    [({"spec": {"epochs": 7}}, "setting"), ({"spec": {"seed": 7}}, "seed"), ({"provenance": {}}, "data digest")],
)
def test_a_control_that_differs_is_named(rich, change, what):
    run = changed(run_of(rich), **change)
    outcome, evidence = questions.own_control(asked(rich, run))
    assert outcome == "violated" and evidence.endswith(f"differs in {what}")


def test_without_a_control_nothing_is_known(rich):
    run = run_of(rich)
    alone = dataclasses.replace(run, frozen_run_id="")
    assert questions.own_control(asked(rich, alone)) == ("unknown", "no frozen control of the same setting and seed")
    given = changed(alone, scalars={"frozen_accuracy": 0.3})
    outcome, evidence = questions.own_control(asked(rich, given))
    assert outcome == "violated" and evidence.startswith("the frozen accuracy is stated by the author")
    elsewhere = dataclasses.replace(run, frozen_run_id="0" * 32)
    assert "not part of this report" in questions.own_control(asked(rich, elsewhere))[1]


def seeds(report, method):
    sources = Sources.of(report)
    group = next(group for group in sources.groups if group.method == method)
    return questions.same_seeds(Asked(group.runs[0], group.runs, sources))


def test_seeds_that_differ_between_methods_are_named(rich, report):
    outcome, evidence = seeds(rich, "dfa")
    assert outcome == "violated" and "others for drtp" in evidence  # drtp has seed 42 alone
    whole = dataclasses.replace(report, excluded=(), choice=Choice("digits", unaudited=()))
    assert seeds(whole, "dfa") == (
        "avoided",
        "seeds 42, 123 for every method of the setting, as study digits has them; none is left out: "
        "the store was asked for all their runs, deleted ones too",
    )


@pytest.mark.parametrize(
    ("choice", "outcome", "words"),
    [
        ({"asked": {"seeds": "42"}, "others": 10}, "violated", "--seeds 42 was asked for, while runs of study digits"),
        ({"asked": {"seeds": "42"}}, "unknown", "--seeds 42 was asked for instead of the seeds of the study's file"),
        ({"others": 10}, "unknown", "with other specifications that were not audited: 10"),
        ({"superseded": 2, "unaudited": None}, "unknown", "passed over for the newest: 2"),
        (
            {"unaudited": None},
            "unknown",
            "what else the store holds is not known: this report is of a release that did not",
        ),
        ({"asked": {"epochs": "5"}}, "avoided", "none is left out"),
    ],
)
def test_seeds_that_were_picked_or_runs_left_out_are_no_whole_study(report, choice, outcome, words):
    found, evidence = seeds(
        dataclasses.replace(report, excluded=(), choice=Choice("digits", **{"unaudited": (), **choice})), "dfa"
    )
    assert found == outcome and words in evidence
    assert ("none is left out" in evidence) == (outcome == "avoided")


@pytest.mark.parametrize(
    ("change", "facts", "outcome", "words"),
    [
        (
            {"seed": 7},
            {},
            "violated",
            "the store holds what is not in this report: seed 7 of dfa, complete (run ffffffff)",
        ),
        ({"seed": 7}, {"deleted": True}, "violated", "complete, deleted in MLflow"),
        ({"seed": 7}, {"finished": False, "status": "running"}, "unknown", "but seed 7 of dfa, running (run"),
        ({}, {}, "unknown", "an older run of seed 42 of dfa"),
        ({}, {"newer": True}, "violated", "a newer run of seed 42 of dfa"),
        ({"seed": 7, "epochs": 999}, {}, "avoided", "none is left out"),
        ({"seed": 7, "method": "drtp"}, {}, "avoided", "none is left out"),
        ({"seed": 7, "control": "frozen"}, {}, "unknown", "seed 7 of frozen"),
    ],
)
def test_what_the_store_holds_besides_decides(report, change, facts, outcome, words):
    known = next(run.record.spec for run in report.runs if run.record.spec.method_label == "dfa")
    held = {"status": "complete", "finished": True, **facts}
    other = OtherRun("f" * 32, dataclasses.replace(known, **{"seed": 42, **change}), "a setting", **held)
    found, evidence = seeds(dataclasses.replace(report, excluded=(), choice=Choice("", unaudited=(other,))), "dfa")
    assert found == outcome and words in evidence


def test_what_was_left_out_makes_it_unknown(report):
    chosen = dataclasses.replace(report, choice=Choice("digits", unaudited=()))
    assert seeds(chosen, "dfa")[0] == "unknown" and "were not judged: 2" in seeds(chosen, "dfa")[1]
    assert "did not look" in seeds(report, "dfa")[1]  # an older report, whose words begin with `study` as well
    some = dataclasses.replace(report, excluded=(), selection="runs a, b")
    assert "selected by runs a, b" in seeds(some, "dfa")[1] and seeds(some, "dfa")[0] == "unknown"
    one = dataclasses.replace(some, excluded=(Exclusion("f", "n", "r"),))
    assert seeds(one, "dfa")[0] == "unknown"
