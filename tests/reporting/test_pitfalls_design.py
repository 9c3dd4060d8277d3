"""Pitfalls of setting runs side by side: the control's setting, and the seeds of the other methods."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.records import Exclusion
from fa_registry.reporting import pitfalls_design as questions
from fa_registry.reporting.pitfalls_words import Asked
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
    assert "given when the run was adopted" in questions.own_control(asked(rich, given))[1]
    elsewhere = dataclasses.replace(run, frozen_run_id="0" * 32)
    assert "not part of this report" in questions.own_control(asked(rich, elsewhere))[1]


def seeds(report, method):
    sources = Sources.of(report)
    group = next(group for group in sources.groups if group.method == method)
    return questions.same_seeds(Asked(group.runs[0], group.runs, sources))


def test_seeds_that_differ_between_methods_are_named(rich, report):
    outcome, evidence = seeds(rich, "dfa")
    assert outcome == "violated" and "others for drtp" in evidence  # drtp has seed 42 alone
    whole = dataclasses.replace(report, excluded=())
    assert seeds(whole, "dfa") == (
        "avoided",
        "seeds 42, 123 for every method of the setting, as the whole study digits has them; none is left out",
    )


def test_what_was_left_out_makes_it_unknown(report):
    assert seeds(report, "dfa")[0] == "unknown" and "2 selected runs were excluded" in seeds(report, "dfa")[1]
    some = dataclasses.replace(report, excluded=(), selection="runs a, b")
    assert "selected by runs a, b" in seeds(some, "dfa")[1] and seeds(some, "dfa")[0] == "unknown"
    one = dataclasses.replace(some, excluded=(Exclusion("f", "n", "r"),))
    assert seeds(one, "dfa")[0] == "unknown"
