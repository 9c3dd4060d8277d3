"""gain: an orthogonal head of scale s has gain s, however small the error."""

from __future__ import annotations

import pytest
import torch

from fa_registry.diagnostics import observe
from fa_registry.diagnostics.gain import PLUGIN
from tests.helpers.small import observation, scaling_network


def test_median_of_gradient_by_error():
    measured = PLUGIN.measure(observation())
    assert [reading.value for reading in measured.sites["gain"]] == [2.0, 2.0]  # of 1/1, 2/1, 5/2 and 1/1, 2/1, 6/2


@pytest.mark.parametrize("confidence", [0.1, 5.0, 15.0])
def test_gain_is_the_network_not_the_error(confidence):
    network = scaling_network([1.5], 4 * torch.eye(2, dtype=torch.float64))
    images = torch.tensor([[confidence, 0.0]], dtype=torch.float64)
    measured = PLUGIN.measure(observe(network, images, torch.tensor([0])))
    assert [reading.value for reading in measured.sites["gain"]] == pytest.approx([10.0, 4.0], rel=1e-9)


def test_samples_without_error_have_no_gain():
    measured = PLUGIN.measure(observation(error=[[0, 0], [1, 0], [0, 0]]))
    assert [reading.value for reading in measured.sites["gain"]] == [2.0, 2.0]


def test_no_error_at_all_is_na_with_the_reason():
    measured = PLUGIN.measure(observation(error=[[0, 0], [0, 0], [0, 0]]))
    assert {reading.reason for reading in measured.sites["gain"]} == {
        "the output error is exactly zero for every sample"
    }


def test_a_broken_error_is_not_finite():
    nan = float("nan")
    assert PLUGIN.measure(observation(error=[[nan, 0], [nan, 0], [nan, 0]])).sites["gain"][0].not_finite
