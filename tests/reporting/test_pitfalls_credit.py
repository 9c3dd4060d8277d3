"""Pitfalls of reading Γ: each answer with the record that gives it, avoided and violated and not to be known."""

from __future__ import annotations

import pytest

from fa_registry.reporting import pitfalls as questions
from tests.reporting.asking import asked, changed, run_of


@pytest.fixture
def said(rich):
    def answer(question, method="dfa", cards=(), **changes):
        return question(asked(rich, changed(run_of(rich, method), **changes), **dict(cards)))

    return answer


@pytest.mark.parametrize(
    ("ranks", "outcome"), [([0.048] * 5, "avoided"), ([0.048, 0.048, 0.6, 0.048, 0.048], "violated"), (None, "unknown")]
)
def test_whether_fresh_feedback_gives_as_much(said, ranks, outcome):
    found, evidence = said(questions.own_feedback, sites={"gamma_null_p": ranks})
    assert found == outcome
    assert {
        "avoided": "20 fresh draws",
        "violated": "0.600, at site 2: 12 of 20 fresh draws reach it; not told apart at 0.05",
        "unknown": "taken away",
    }[outcome] in evidence


def test_a_credit_that_is_exact_has_no_such_pitfall(said):
    for question in (questions.own_feedback, questions.every_aggregation, questions.no_single_site):
        assert said(question, "bp") == ("not applicable", questions.EXACT)


def test_every_aggregation_or_one_number_alone(said):
    assert said(questions.every_aggregation)[0] == "avoided"
    one = dict.fromkeys(questions.AGGREGATES[1:])
    assert said(questions.every_aggregation, scalars=one)[0] == "violated"
    none = {**dict.fromkeys(questions.AGGREGATES), "gamma_deep_mean": None}
    assert said(questions.every_aggregation, scalars=none) == ("unknown", "taken away")
    spread = {name: 0.1 * place for place, name in enumerate(questions.AGGREGATES)}
    assert "0.000 to 0.700, a spread of 0.700" in said(questions.every_aggregation, scalars=spread)[1]


@pytest.mark.parametrize(
    ("gamma", "outcome"),
    [
        ([0.1] * 5, "avoided"),
        ([0.01, 0.01, 0.9, 0.01, 0.01], "violated"),
        ([0.1, None, None, None, None], "unknown"),
        ([0.1, -0.1, 0.0, 0.0, 0.0], "violated"),
    ],
)
def test_no_one_site_carries_the_mean(said, gamma, outcome):
    assert said(questions.no_single_site, sites={"gamma": gamma})[0] == outcome


def test_the_mean_that_no_site_may_carry_is_the_headline(said):
    """gamma_deep_mean has no site 0; what site 0 does to the mean over all sites is told beside it."""
    outcome, evidence = said(questions.no_single_site, sites={"gamma": [0.9, 0.1, 0.1, 0.1, 0.1]})
    assert outcome == "avoided" and "changes gamma_deep_mean, 0.100 over 4 sites, by 0\u00a0% of itself" in evidence
    assert evidence.endswith("with site 0, as in gamma_all_mean_mean, site 0 carries the mean (62\u00a0% of itself)")
    assert "site 0" not in said(questions.no_single_site, sites={"gamma": 0.1})[1]
    hidden = {"gamma": [0.5, 0.6, 0.1, 0.1, 0.1]}  # over all sites no one carries it
    assert said(questions.no_single_site, sites=hidden)[0] == "violated"


def test_a_site_that_is_exact_does_not_count(said):
    card = {"methods/dfa": {"exact_sites": "last"}}
    gamma = {"gamma": [0.1, 0.1, 0.1, 0.1, 1.0]}
    assert said(questions.no_single_site, sites=gamma, cards=card)[0] == "avoided"
    assert said(questions.no_single_site, sites=gamma)[0] == "violated"


def test_feedback_is_saved_or_gamma_is_absent(said):
    saved = {"feedback": {"sha256": "ab"}}
    assert said(questions.saved_feedback, **saved)[0] == "avoided"
    assert said(questions.saved_feedback, feedback={})[0] == "violated"
    assert said(questions.saved_feedback, feedback={}, sites={"gamma": None})[0] == "avoided"
    assert said(questions.saved_feedback, "bp", feedback={})[0] == "not applicable"
    assert said(questions.saved_feedback, feedback={}, cards={"methods/dfa": {}})[0] == "unknown"
