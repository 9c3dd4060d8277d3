"""The aggregates of Γ, and what is left out of them."""

from __future__ import annotations

import pytest

from fa_registry.diagnostics.aggregates import NAMES, PLUGIN
from fa_registry.training.measuring import measure
from tests.helpers.small import observation, tiny_task

UNIT = [[1, 0], [1, 0], [1, 0]]


def seen(*rows: list[list[float]], **changes):
    """An observation whose gradients are all (1, 0), so that a unit credit's cosine is its first entry."""
    credits = [[[cosine, (1 - cosine**2) ** 0.5] for cosine in row] for row in rows]
    return observation(hidden=[UNIT] * len(rows), gradients=[UNIT] * len(rows), credits=credits, **changes)


ROWS = ([0.9, 0.9, 0.0], [0.1, 0.2, 0.6], [0.0, 0.3, 0.3], [-1.0, 0.5, 0.8])


def test_the_four_ways_with_and_without_site_zero():
    scalars = PLUGIN.measure(seen(*ROWS)).scalars
    expected = {  # means per site .6 .3 .2 .1; medians .9 .2 .3 .5
        "gamma_deep_mean_mean": 0.2,
        "gamma_deep_mean_median": 1 / 3,
        "gamma_deep_median_mean": 0.2,
        "gamma_deep_median_median": 0.3,
        "gamma_all_mean_mean": 0.3,
        "gamma_all_mean_median": 0.475,
        "gamma_all_median_mean": 0.25,
        "gamma_all_median_median": 0.4,
    }
    assert set(expected) == set(NAMES)
    assert {name: scalars[name].value for name in NAMES} == pytest.approx(expected)
    assert scalars["gamma_deep_mean"] == scalars["gamma_deep_mean_mean"]
    assert scalars["gamma_spread"].value == pytest.approx(0.475 - 0.2)


def test_exact_sites_are_left_out():
    rows = (*ROWS[:3], [1.0, 1.0, 1.0])
    scalars = PLUGIN.measure(seen(*rows, exact=(False, False, False, True))).scalars
    assert scalars["gamma_deep_mean"].value == pytest.approx(0.25)
    assert scalars["gamma_all_mean_mean"].value == pytest.approx(1.1 / 3)


def test_exact_everywhere_is_na():
    scalars = PLUGIN.measure(seen(*ROWS, exact=(True,) * 4)).scalars
    assert {reading.reason for reading in scalars.values()} == {"the credit is exact by construction at every site"}


def test_only_site_zero_left_means_no_deep_aggregate():
    scalars = PLUGIN.measure(seen(*ROWS[:2], exact=(False, True))).scalars
    assert scalars["gamma_deep_mean"].reason.startswith("no site is left")
    assert scalars["gamma_all_mean_mean"].value == pytest.approx(0.6)


def test_one_site_without_gamma_is_not_averaged_away():
    broken = seen(*ROWS)
    broken.credits[2].zero_()
    scalars = PLUGIN.measure(broken).scalars
    assert scalars["gamma_deep_mean"].reason == "site 2: credit or gradient is zero or not finite for every sample"
    assert scalars["gamma_spread"].reason == "no aggregate has a value"


def test_without_credits_the_reason_is_passed_on():
    scalars = PLUGIN.measure(observation(no_credits="no file")).scalars
    assert {reading.reason for reading in scalars.values()} == {"no file"}


def test_fa_is_aggregated_without_its_exact_last_site():
    measured = measure(tiny_task(method="fa"))
    assert measured.scalars["gamma_deep_mean"].value == pytest.approx(measured.sites["gamma"][1].value)
