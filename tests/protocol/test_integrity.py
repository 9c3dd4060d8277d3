"""Logged against recomputed figures."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.integrity import compare, merged
from fa_registry.records import Reading
from tests.builders import measurements

HERE = {"threads": 1, "device": "cpu", "torch": "2.13.0", "processor": "EPYC, AVX2"}


def taken(conventions=HERE, **figures):
    return dataclasses.replace(measurements(**figures), conventions=conventions)


def test_equal_figures_are_verified():
    assert compare(taken(), taken()).state == "verified"


def test_the_last_bit_is_a_mismatch_with_both_numbers():
    integrity = compare(taken(accuracy=0.9), taken(accuracy=0.9000000000000001))
    assert integrity.state == "mismatch"
    assert integrity.details == ("accuracy: logged 0.9, recomputed 0.9000000000000001",)


@pytest.mark.parametrize("changed", [{"threads": 2}, {"torch": "2.14.0"}, {"device": "cuda"}, {"processor": "Xeon"}])
def test_elsewhere_a_tolerance_applies_and_is_named(changed):
    elsewhere = {**HERE, **changed}
    close = compare(taken(accuracy=0.9), taken(elsewhere, accuracy=0.9000000000000001))
    assert close.state == "verified" and "1e-06" in close.details[0]
    assert compare(taken(accuracy=0.9), taken(elsewhere, accuracy=0.9001)).state == "mismatch"


def test_a_figure_that_cannot_be_recomputed_is_unverifiable_not_a_match():
    integrity = compare(taken(g_norm=1.0), taken(g_norm=None))
    assert integrity.state == "unverifiable" and "cannot be recomputed" in integrity.details[0]


def test_a_number_where_none_was_logged_is_a_mismatch():
    assert compare(taken(g_norm=None), taken(g_norm=1.0)).state == "mismatch"


def test_losses_stay_as_logged():
    logged = taken()
    logged = dataclasses.replace(logged, scalars={**logged.scalars, "loss_train": Reading(0.3)})
    assert merged(logged, taken(accuracy=0.1)).scalars == {**taken(accuracy=0.1).scalars, "loss_train": Reading(0.3)}


def test_elsewhere_a_tiny_gradient_is_still_compared_by_its_own_size():
    """An absolute tolerance of 1e-6 would call 4e-9 and 9e-7 equal, on either side of D2's floor."""
    elsewhere = {**HERE, "threads": 2}
    assert compare(taken(g_norm=128 * 4e-9), taken(elsewhere, g_norm=128 * 9e-7)).state == "mismatch"
