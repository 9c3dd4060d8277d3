"""Several conditions under one guard: which of them decides."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry.protocol.judges import decide
from fa_registry.protocol.rules import load_edition
from tests.builders import reading

D2 = load_edition("2026-11").rules[1]
SMALL, LARGE = 1e-6, 1.0


@pytest.mark.parametrize(
    ("g_norm", "gain", "fidelity", "outcome", "state"),
    [
        (LARGE, 0.5, 1.0, "pass", "OK"),
        (LARGE, None, 1.0, "pass", "OK"),  # what tells a small reference apart is not needed for one that is not
        (LARGE, 0.5, None, "not_applicable", ""),  # it may be noise: nothing clears it
        (LARGE, 1e-9, 1.0, "pass", "OK"),
        (LARGE, 0.5, 0.98, "warn", "NOISY"),  # the guard speaks first
        (SMALL, 0.5, 1.0, "pass", "CONVERGED"),
        (SMALL, 1e-5, 1.0, "fail", "AT FLOOR"),
        (SMALL, 1e-5, 0.98, "warn", "NOISY"),
        (SMALL, 1e-5, None, "not_applicable", ""),  # nor condemns it
        (SMALL, 0.5, None, "not_applicable", ""),
        (SMALL, None, 1.0, "not_applicable", ""),
        (None, 1e-5, 0.98, "not_applicable", ""),
        (0.0, 0.0, None, "not_applicable", ""),  # exactly zero is no small reference: nothing reaches the site
    ],
)
def test_small_reference_gain_and_fidelity(g_norm, gain, fidelity, outcome, state):
    decision = decide(D2, [reading(g_norm), reading(gain), reading(fidelity)])
    assert (decision.outcome, decision.state) == (outcome, state)
    assert decision.fires == {"fail": True, "not_applicable": None}.get(outcome, False)
    assert bool(decision.reason) == (decision.fires is None)


def test_the_reason_names_what_is_missing_beside_what_is_there():
    decision = decide(D2, [reading(1e-6), reading(None, "no output error"), reading(1.0)])
    assert decision.reason == "1e-06, but gain is N/A: no output error"


def test_a_leading_figure_that_is_not_finite_may_stand_beside_a_missing_one():
    rule = dataclasses.replace(D2, fires="above", guard=None)
    assert decide(rule, [reading(math.inf), reading(None)]).reason == "not finite (inf), but gain is N/A: not measured"
    assert decide(rule, [reading(math.inf), reading(1e-9)]).fires
