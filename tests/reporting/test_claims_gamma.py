"""Γ: as what it may be read, and whether it is the training feedback's own: only a null of fresh draws tells."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.records import Reading, Verdict
from fa_registry.reporting.claims_gamma import gamma_claims
from fa_registry.reporting.fresh_draws import reaching
from tests.reporting.asking import changed, run_of
from tests.reporting.scenes import a_finding


@pytest.fixture
def said(rich):
    """[(kind, text)] of a run of dfa that passes, with a finding in this state about its null."""

    def of(state="", rank=1.0, **changes):
        finding = a_finding(
            "any name",
            "warn",
            quantity="gamma_null_p",
            state=state,
            gating=False,
            observed=Reading(rank),
            threshold=0.05,
        )
        run = dataclasses.replace(
            changed(run_of(rich), **changes), findings=(finding,) if state else (), verdict=Verdict("pass", "PASS")
        )
        return [(claim.kind, claim.text) for claim in gamma_claims([run])]

    return of


def test_a_specific_gamma_may_be_read_as_alignment_of_the_training_feedback(said):
    alignment, own = said("SPECIFIC", 0.048)
    assert alignment[0] == own[0] == "may"
    assert "alignment with the gradient, site by site, for the training feedback only" in alignment[1]
    assert "Γ is specific to the training feedback" in own[1]


def test_a_gamma_that_fresh_draws_reach_is_the_gradients_matter_alone(said):
    note, back = said("NOT SPECIFIC", 2 / 21)
    assert note[0] == "note" and "that it comes from the training feedback is not shown" in note[1]
    assert back[0] == "not" and "1 of 20 fresh draws reach it; not told apart at 0.05" in back[1]


def test_without_a_null_the_feedback_is_not_shown_and_why(said):
    ((kind, text),) = said(sites={"gamma_null_p": None})
    assert kind == "may" and "for the training feedback only" not in text
    assert "is not shown (taken away)" in text
    ((_, text),) = said()  # an edition whose rules do not ask
    assert "is not shown (seed 42)" in text


def test_a_run_that_diverged_is_specific_of_nothing(rich):
    run = dataclasses.replace(
        changed(run_of(rich), status="diverged"),
        findings=(a_finding("D4", "pass", quantity="gamma_null_p", state="SPECIFIC"),),
        verdict=Verdict("fail", "DIVERGED"),
    )
    assert list(gamma_claims([run])) == []


@pytest.mark.parametrize(
    ("ranks", "draws", "words"),
    [
        ([1 / 21], 20, "0 of 20 fresh draws reach it; not told apart at 0.05"),
        ([2 / 21, 8 / 21], 20, "between 1 and 7 of 20 fresh draws reach it"),
        ([1.0], 20, "20 of 20"),
        ([0.5], None, "fresh draws reach it; not told apart"),
    ],
)
def test_a_rank_tells_how_many_draws_reach_it(ranks, draws, words):
    assert reaching(ranks, draws, 0.05).startswith(words)
