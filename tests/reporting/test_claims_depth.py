"""Depth: what a margin over frozen blocks allows to say, and how many seeds would decide it."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from fa_registry.records import Reading
from fa_registry.reporting.claims_depth import MOST_SEEDS, depth_claims, seeds_needed
from fa_registry.statistics import seeds_to_plan, t_interval
from tests.reporting.asking import changed
from tests.reporting.scenes import a_finding


def margin(values, limit=2.0, **changes):
    """The finding of a rule over seeds with these margins, in percentage points."""
    interval = t_interval(values)
    return a_finding(
        "D3",
        quantity="margin_pp",
        observed=Reading(sum(values) / len(values)),
        interval=(interval.low, interval.high),
        seeds=len(values),
        threshold=limit,
        **changes,
    )


@pytest.fixture
def said(report):
    """The claims on two seeds that share a finding."""

    def of(finding):
        runs = [dataclasses.replace(run, findings=(finding,)) for run in report.runs[:2]]
        return [(claim.kind, claim.text) for claim in depth_claims(runs)]

    return of


def test_undecided_says_the_interval_and_how_many_seeds_would_do(said):
    finding = margin([1.0, 4.0, 5.5], outcome="warn", state="UNDECIDED")
    ((kind, text),) = said(finding)
    assert kind == "open" and "is undecided: the margin is +3.5\u00a0pp" in text
    assert "holds the limit of 2 pp" in text
    assert (
        f"A new study of {seeds_needed(finding)} fresh seeds, their number fixed in advance" in text and "80%" in text
    )


@pytest.mark.parametrize("values", [[1.0, 4.0, 5.5], [0.0, 9.0], [-8.0, 1.0, 6.0, 3.0]])
def test_the_study_named_is_one_of_this_mean_and_spread(values):
    """Whatever the level of the interval that the spread is read back from."""
    finding = margin(values)
    planned = seeds_to_plan(abs(statistics.mean(values) - 2), statistics.stdev(values))
    wide = t_interval(values, 0.975)
    second = dataclasses.replace(finding, interval=(wide.low, wide.high), confidence=0.975, look=2)
    assert seeds_needed(finding) == seeds_needed(second) == planned > len(values)


def test_a_mean_on_the_limit_is_never_decided(said):
    finding = margin([0.0, 4.0], outcome="warn", state="UNDECIDED")
    assert seeds_needed(finding) is None
    text = said(finding)[0][1]
    assert f"not even {MOST_SEEDS:,} seeds would decide it: the mean lies too near the limit" in text
    assert "A new study" not in text


@pytest.mark.parametrize(
    "change", [{"interval": None}, {"threshold": None}, {"observed": Reading(None, "x")}, {"seeds": 1}]
)
def test_without_a_figure_no_number_of_seeds_is_named(change):
    assert seeds_needed(dataclasses.replace(margin([1.0, 4.0, 5.5]), **change)) is None


def test_one_seed_is_provisional_and_says_what_would_decide(said):
    finding = a_finding("D3", "warn", quantity="margin_pp", observed=Reading(4.0), threshold=2.0, state="PROVISIONAL")
    ((kind, text),) = said(finding)
    assert kind == "open" and "provisional: the margin of one seed, +4.0\u00a0pp where 2 pp are asked for" in text
    assert "their number fixed before the first of them is audited" in text


def test_a_margin_that_clears_with_an_interval_may_be_claimed(said):
    ((kind, text),) = said(margin([9.0, 10.0, 11.0], outcome="pass", state="CLEARS"))
    assert (
        kind == "may" and "beat frozen random ones; the margin is +10.0\u00a0pp, 95 % interval +7.5\u00a0pp to" in text
    )
    assert said(a_finding("D3", "pass", quantity="accuracy", state="CLEARS")) == []  # one run's margin is no claim


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([-3.0, -4.0, -5.0], "do worse than frozen random ones"),
        ([-1.0, 0.0, 1.0], "are not shown to beat frozen random ones"),
        ([0.9, 1.0, 1.1], "beat frozen random ones, but by less than the limit"),
    ],
)
def test_a_margin_below_the_limit_lies_below_about_or_above_0(said, values, words):
    ((kind, text),) = said(margin(values, state="UNDERCUT"))
    assert kind == "not" and f"The trained blocks {words}: " in text and "may not be credited; the margin is" in text


def test_a_run_that_diverged_beats_nothing(report):
    finding = margin([9.0, 10.0, 11.0], outcome="pass", state="CLEARS")
    runs = [dataclasses.replace(changed(run, status="diverged"), findings=(finding,)) for run in report.runs[:2]]
    assert list(depth_claims(runs)) == []


def test_an_undercut_margin_is_walked_back(said):
    ((kind, text),) = said(margin([-1.0, 0.0, 1.0], state="UNDERCUT"))
    assert kind == "not" and "not shown to beat frozen random ones" in text and "over 3 seeds, the limit 2 pp" in text
    ((kind, text),) = said(a_finding("d", quantity="accuracy", state="UNDERCUT", threshold=2.0))
    assert kind == "not" and "interval" not in text


def test_what_rests_on_a_stated_figure_says_so_and_may_not_be_claimed(said):
    ((kind, text),) = said(margin([8.0, 9.0, 10.0], outcome="warn", state="STATED", stated=True))
    assert kind == "open"
    assert text.startswith(
        "The trained blocks stand above a frozen accuracy stated by the author, by +9.0\u00a0pp, 95 % interval"
    )
    ((kind, text),) = said(a_finding("D3", quantity="accuracy", outcome="warn", state="STATED", stated=True))
    assert kind == "open" and "by what D3 asks for, each seed judged by itself" in text


@pytest.mark.parametrize("state", ["UNDERCUT", "UNDECIDED", "PROVISIONAL"])
def test_every_claim_about_a_stated_figure_says_so_and_no_other_does(said, state):
    outcome = "fail" if state == "UNDERCUT" else "warn"
    ((_, stated),) = said(margin([1.0, 4.0, 5.5], outcome=outcome, state=state, stated=True))
    ((_, measured),) = said(margin([1.0, 4.0, 5.5], outcome=outcome, state=state))
    assert "the frozen accuracy is stated by the author, not measured here" in stated
    assert "stated" not in measured
    assert "More seeds would decide it" not in stated
