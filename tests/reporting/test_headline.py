"""The sentence on top: every method counted once, controls never, and the grammar right."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Verdict
from fa_registry.reporting.pages.index import headline, judged_columns, short_names
from fa_registry.reporting.sources import Sources
from fa_registry.reporting.values import Judged, Link

PASS = Verdict("PASS", "pass")


def group(one, outcome):
    """A group like `one` with another verdict."""
    return dataclasses.replace(one, verdict=dataclasses.replace(one.verdict, outcome=outcome))


@pytest.mark.parametrize(
    ("outcomes", "sentence"),
    [
        ((), "No method was judged."),
        (("pass",), "The only method passes."),
        (("fail", "fail"), "All 2 methods fail."),
        (("pass", "fail"), "1 of 2 methods fails, 1 passes."),
        (("pass", "warn", "warn", "incomplete"), "1 of 4 methods is incomplete, 2 draw a warning, 1 passes."),
    ],
)
def test_one_sentence_says_every_verdict_worst_first(report, outcomes, sentence):
    model = groups(report)[0]
    found = headline([group(model, outcome) for outcome in outcomes])
    assert found.sentence == sentence
    assert sum(count for _, count in found.counts) == len(outcomes)


def test_a_method_in_two_settings_is_two_pairs(report):
    first = groups(report)[0]
    run = first.runs[0]
    spec = dataclasses.replace(run.record.spec, epochs=7)
    other = dataclasses.replace(run, record=dataclasses.replace(run.record, spec=spec))
    found = headline([group(first, "pass"), dataclasses.replace(group(first, "fail"), runs=(other,))])
    assert found.sentence == "1 of 2 method × setting pairs fails, 1 passes." and found.settings == 2


def test_rules_are_those_that_gate_and_fire_most_often_first(rich):
    rules = headline(Sources.of(rich).groups).rules
    assert [(rule, count) for rule, _, count in rules] == [("D1", 2), ("D2", 1)]


def test_controls_are_not_counted(report):
    assert headline(groups(report)).counts == (("fail", 1), ("pass", 1))


def test_a_name_is_shortened_only_where_it_still_says_which_variant():
    texts = ("dtp (sigma=0.1)", "dtp (sigma=0.3)", "ep (beta=0.5,steps=20)", "bp")
    links = [Link(text, "s", PASS, "h", "m") for text in texts]
    assert [link.text for link in short_names(links)] == ["dtp (sigma=0.1)", "dtp (sigma=0.3)", "ep", "bp"]
    assert [link.text for link in short_names([*links[:1], *links[:1]])] == ["dtp", "dtp"]  # one variant, two settings


def test_a_column_has_its_worst_judgement_with_the_seeds_it_is_about(rich):
    found = {one.method: judged_columns(one) for one in groups(rich) if not one.control}
    assert found["fa"]["growth"] == Judged("D1", "fail", (42, 123))
    assert found["bp"] == {}
