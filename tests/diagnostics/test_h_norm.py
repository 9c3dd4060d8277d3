"""h_norm and growth in closed form."""

from __future__ import annotations

import pytest
import torch

from fa_registry.diagnostics import observe
from fa_registry.diagnostics.h_norm import PLUGIN
from tests.helpers.small import observation, scaling_network


def test_median_over_samples_and_ratio_to_the_site_before():
    measured = PLUGIN.measure(observation())
    assert [reading.value for reading in measured.sites["h_norm"]] == [5.0, 5.0]
    assert measured.sites["growth"][0].reason == "growth starts at site 1"
    assert measured.sites["growth"][1].value == 1.0
    assert measured.scalars["h_L"].value == 5.0


def test_a_residual_block_kh_grows_the_state_by_one_plus_k():
    network = scaling_network([0.5, 9.0, -0.5], torch.eye(2, dtype=torch.float64))
    images = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    measured = PLUGIN.measure(observe(network, images, torch.tensor([0, 1, 0])))
    assert [reading.value for reading in measured.sites["growth"][1:]] == pytest.approx([1.5, 10.0, 0.5])
    assert [reading.value for reading in measured.sites["h_norm"]] == pytest.approx([2.0, 3.0, 30.0, 15.0])
    assert measured.scalars["growth_max"].value == pytest.approx(10.0)


def test_growth_from_nothing_is_divided_by_the_floor():
    zero = [[0, 0], [0, 0], [0, 0]]
    measured = PLUGIN.measure(observation(hidden=[zero, [[3, 4], [3, 4], [3, 4]]]))
    assert measured.sites["growth"][1].value == pytest.approx(5e12)


def test_without_blocks_there_is_no_growth():
    seen = observation(hidden=[[[3, 4], [0, 1], [6, 8]]], gradients=[[[1, 0], [0, 2], [3, 4]]])
    assert PLUGIN.measure(seen).scalars["growth_max"].reason == "the network has no block"


@pytest.mark.parametrize("broken", [float("inf"), float("nan")])
def test_broken_states_are_recorded_as_not_finite(broken):
    rows = [[broken, 0], [broken, 0], [broken, 0]]
    measured = PLUGIN.measure(observation(hidden=[[[3, 4], [0, 1], [6, 8]], rows, rows][:3], gradients=[rows] * 3))
    assert measured.sites["h_norm"][0].value == 5.0
    assert measured.sites["h_norm"][1].not_finite
    assert measured.sites["growth"][2].not_finite  # inf / inf
    assert measured.scalars["growth_max"].not_finite
