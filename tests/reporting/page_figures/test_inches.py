"""Ticks and ranges of small multiples."""

from __future__ import annotations

import math

import pytest

from fa_registry.reporting.figures.plates import padded, whole_ticks


@pytest.mark.parametrize(("last", "ticks"), [(0, [0]), (4, [0, 1, 2, 3, 4]), (24, [0, 6, 12, 18, 24]), (5, [0, 2, 4])])
def test_ticks_are_whole_and_few(last, ticks):
    assert whole_ticks(last) == ticks


def test_a_range_has_a_width_whatever_is_in_it():
    assert padded([], 1.0) == (-0.5, 0.5) and padded([math.nan, math.inf], 1.0) == (-0.5, 0.5)
    low, high = padded([3.0], 0.2)
    assert (low, high) == (pytest.approx(2.9), pytest.approx(3.1))
