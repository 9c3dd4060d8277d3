"""norm_ratio: the credit's scale beside the gradient's."""

from __future__ import annotations

import pytest

from fa_registry.diagnostics.norm_ratio import PLUGIN
from tests.helpers.small import observation

GRADIENTS = [[[1, 0], [0, 2], [3, 4]], [[0, 1], [2, 0], [0, 6]]]


def ratios(**changes):
    return PLUGIN.measure(observation(**changes)).sites["norm_ratio"]


def test_median_of_the_ratios():
    credits = [[[0, 10], [0, 2], [0, 10]], [[3, 4], [3, 4], [3, 4]]]
    assert [reading.value for reading in ratios(gradients=GRADIENTS, credits=credits)] == pytest.approx([2.0, 2.5])


def test_samples_without_gradient_are_left_out():
    gradients = [[[0, 0], [0, 2], [0, 2]], GRADIENTS[1]]
    assert ratios(gradients=gradients, credits=[[[0, 6]] * 3] * 2)[0].value == pytest.approx(3.0)


def test_reasons():
    assert ratios(no_credits="no file")[0].reason == "no file"
    zero = ratios(gradients=[[[0, 0]] * 3, GRADIENTS[1]], credits=GRADIENTS)
    assert zero[0].reason == "the reference gradient is exactly zero for every sample"
    broken = [[[float("inf"), 0]] * 3, GRADIENTS[1]]
    assert ratios(gradients=broken, credits=broken)[0].not_finite
