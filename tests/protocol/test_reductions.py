"""One number out of many: which, and from which site."""

from __future__ import annotations

import math

import pytest

from fa_registry.protocol.operators import NAMES, take, trajectory
from fa_registry.records import Measurements, Reading
from tests.builders import reading


def taken(how, *values, name="q"):
    sites = {name: tuple(reading(value) for value in values)} if values else {}
    return take("q", how, Measurements(sites, {}))


def test_a_scalar_is_looked_up_by_its_name():
    measured = Measurements({}, {"q": Reading(0.4)})
    assert take("q", "scalar", measured) == (Reading(0.4), None)
    assert take("other", "scalar", measured) == (Reading(None, "other was not measured"), None)


@pytest.mark.parametrize("how", [name for name in NAMES if name != "scalar"])
def test_what_was_not_measured_has_no_site(how):
    assert taken(how) == (Reading(None, "q was not measured"), None)


def test_the_last_site():
    assert taken("last_site", 9.0, 1.0, 3.0) == (Reading(3.0), 2)
    assert taken("last_site", 9.0, None) == (Reading(None, "not measured"), 1)


def test_the_largest_site_is_taken_and_a_broken_one_before_it():
    assert taken("max_over_sites", None, 9.0, 3.0) == (Reading(9.0), 1)
    assert taken("max_over_sites", None, 9.0, math.nan) == (Reading.of(math.nan), 2)
    assert taken("max_over_sites", -3.0, -1.0) == (Reading(-1.0), 1)
    assert taken("max_over_sites", None, None) == (Reading(None, "not measured"), 1)


def test_growth_since_the_first_site():
    assert taken("max_relative_to_first", 2.0, 8.0, 6.0) == (Reading(4.0), 1)
    assert taken("max_relative_to_first", 2.0, math.inf, 6.0) == (Reading.of(math.inf), 1)
    assert taken("max_relative_to_first", 2.0, None, 6.0) == (Reading(None, "not measured"), 1)
    assert taken("max_relative_to_first", 0.0, 1.0) == (Reading(1e12), 1)


@pytest.mark.parametrize(
    ("values", "share", "site"),
    [
        ((0.5, 0.6, 0.7), 0.05 / 0.6, 2),
        ((0.016, 0.072, -0.085, 0.997), 0.996, 3),  # FA in the paper: block 4 alone carries the mean
        ((0.4, 0.001, -0.0004, -0.002), 1.0047, 0),  # DFA in the paper: block 1 does, and the sign changes
        ((-0.016, -0.072, 0.085, -0.997), 0.996, 3),  # a mean below 0 is carried no less
        ((None, 0.5, None, 0.5), 0.0, 3),
        ((0.0, 0.0), 0.0, 1),
    ],
)
def test_the_share_of_the_mean_that_one_end_carries(values, share, site):
    found, where = taken("end_share", *values)
    assert (found.value, where) == (pytest.approx(share, abs=1e-3), site)


def test_without_two_sites_no_end_can_be_left_out():
    assert taken("end_share", None, 0.5)[0].reason.startswith("1 sites")


def test_a_mean_of_zero_is_carried_by_its_ends():
    assert taken("end_share", 0.5, -0.5)[0].not_finite


def test_the_same_number_by_epoch():
    assert trajectory("stability_mid", "scalar") == "stability_mid"
    assert trajectory("gain", "last_site") == "gain_L"
    assert trajectory("growth", "max_over_sites") == "growth_max"
    assert trajectory("h_norm", "last_site") == "h_L"
    assert trajectory("h_norm", "max_relative_to_first") == ""
