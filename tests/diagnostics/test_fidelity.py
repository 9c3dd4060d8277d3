"""fidelity: float32 against float64, direction only."""

from __future__ import annotations

import pytest
import torch

from fa_registry.diagnostics import observe
from fa_registry.diagnostics.fidelity import PLUGIN
from tests.helpers.small import observation, tiny_task

GRADIENTS = [[[1, 0], [0, 2], [3, 4]], [[0, 1], [2, 0], [0, 6]]]


def test_mean_cosine_over_samples_and_the_lowest_site():
    doubled = [[[2, 0], [0, 9], [3, 4]], [[1, 0], [2, 0], [0, 6]]]
    measured = PLUGIN.measure(observation(gradients=GRADIENTS, gradients_double=doubled))
    assert [reading.value for reading in measured.sites["fidelity"]] == pytest.approx([1.0, 2 / 3])
    assert measured.scalars["fidelity_min"].value == pytest.approx(2 / 3)


def test_without_the_second_pass_it_is_na():
    measured = PLUGIN.measure(observation())
    assert {reading.reason for reading in measured.sites["fidelity"]} == {"no float64 pass was made"}
    assert measured.scalars["fidelity_min"].reason == "no float64 pass was made"


def test_a_zero_gradient_has_none():
    zero = [[[0, 0]] * 3, GRADIENTS[1]]
    measured = PLUGIN.measure(observation(gradients=zero, gradients_double=zero))
    assert measured.sites["fidelity"][0].reason == "the gradient is zero or not finite for every sample"
    assert measured.scalars["fidelity_min"].value == pytest.approx(1.0)


def test_a_healthy_network_is_exact_and_a_tiny_gradient_stays_so():
    task = tiny_task()
    images, labels = task.eval_batch
    with torch.no_grad():
        task.network.out_head.weight.mul_(1e-9)
    lowest = PLUGIN.measure(observe(task.network, images, labels)).scalars["fidelity_min"]
    assert lowest.value == pytest.approx(1.0, abs=1e-6)
