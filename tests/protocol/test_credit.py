"""Credit against its own null, and the end that carries the mean."""

from __future__ import annotations

import pytest

from fa_registry.protocol.credit import carried_text
from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Reading
from tests.builders import BEST_P, frozen, measurements, record

EDITION = load_edition("2026-12")
EXACT = None  # a site whose credit is exact has a Γ of 1 and no null


def d4(edition=EDITION, **figures):
    return judge(record(measured=measurements(**figures)), frozen(), edition).findings[3]


def test_specific_credit_gives_its_largest_p():
    finding = d4(gamma_null_p=(BEST_P, 0.049, BEST_P))
    assert (finding.outcome, finding.state, finding.observed, finding.site) == ("pass", "SPECIFIC", Reading(0.049), 1)
    assert (finding.gating, finding.threshold, finding.quantity) == (False, 0.05, "gamma_null_p")
    assert "3 counted sites" in finding.sentence


def test_one_site_like_its_null_is_enough_to_be_unspecific():
    finding = d4(gamma_null_p=(BEST_P, BEST_P, 0.3))
    assert (finding.outcome, finding.state, finding.site) == ("warn", "NOT SPECIFIC", 2)
    assert finding.crossed == "above" and finding.guard is None


def test_exact_sites_do_not_count():
    """Γ = 1 at the last site would carry the mean; it has no null and is left out of everything."""
    finding = d4(gamma=(0.10, 0.11, 0.12, 1.0), gamma_null_p=(BEST_P, BEST_P, BEST_P, EXACT))
    assert (finding.outcome, finding.state) == ("pass", "SPECIFIC")
    assert "3 counted sites" in finding.sentence


@pytest.mark.parametrize(
    ("gamma", "site"),
    [((0.016, 0.072, -0.085, 0.997), 3), ((0.4, 0.001, -0.0004, -0.002), 0)],
    ids=["fa", "dfa"],
)
def test_aggregation_collapse_is_named_with_its_end(gamma, site):
    finding = d4(gamma=gamma, gamma_null_p=(BEST_P,) * 4)
    assert (finding.outcome, finding.state) == ("warn", "SPECIFIC")
    assert f"aggregation collapse: without site {site}, the mean gamma" in finding.sentence
    guard = finding.guard
    assert (guard.quantity, guard.crossed, guard.site, finding.crossed) == ("gamma", "above", site, "")
    assert guard.mean == pytest.approx(sum(gamma) / len(gamma)) and guard.observed.value > 0.5
    assert carried_text(guard) in finding.sentence
    assert finding.quantities == ("gamma_null_p", "gamma_deep_mean", "gamma")


def test_an_even_distribution_collapses_nowhere():
    assert "collapse:" not in d4(gamma=(0.5, 0.6, 0.7)).sentence
    assert "collapse:" in d4(load_edition("2026-12", {"D4.gamma": 0.01}), gamma=(0.5, 0.6, 0.7)).sentence


def test_without_a_site_that_counts_it_says_why():
    missing = d4(gamma=(None,) * 3)
    assert missing.outcome == "not_applicable"
    assert "gamma: not measured" in missing.sentence
    assert "gamma_null_p: not measured" in d4(gamma_null_p=(None,) * 3).sentence
    assert "gamma_null_p was not measured" in d4(gamma_null_p=()).sentence
    assert "no site counts" in d4(gamma=(0.5, None, None), gamma_null_p=(None, BEST_P, BEST_P)).sentence


def test_a_control_has_no_credit_to_judge():
    assert judge(frozen(), None, EDITION).findings[3].outcome == "skipped"
