"""predictive_coding: the reference implementations of both forms, and what the errors are once the states are at rest."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.methods.base import NetworkShape
from fa_registry.methods.predictive_coding import PLUGIN
from fa_registry.training.step import local_credit_step
from tests.helpers import numpy_checks
from tests.helpers.numpy_energy import errors_at, pulled, relaxed, scaling_inputs
from tests.helpers.numpy_resmlp import Arrays, local_gradients

STEPS, STEP_SIZE = 20, 0.05  # the card's defaults


def predictive_coding_reference(
    w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str
) -> Arrays:
    """c_l = −ε_l of the relaxed states."""

    def credit(states, error, top_gradient):
        return [-error for error in errors_at(w, relaxed(w, states, y, 1.0, STEPS, STEP_SIZE), states[0])]

    return local_gradients(w, x, y, credit, penalty, kind)


def fixed_reference(w: Arrays, x: np.ndarray, y: np.ndarray, steps: int, step_size: float) -> Arrays:
    """c_l ← c_l + η(c_{l+1} J_{l+1} − c_l) from zero, J_{l+1} at the forward pass, g_L above the last."""

    def credit(states, error, top_gradient):
        credits = [np.zeros_like(state) for state in states]
        for _ in range(steps):
            above = [*pulled(w, states, credits), top_gradient]
            credits = [c + step_size * (pull - c) for c, pull in zip(credits, above, strict=True)]
        return credits

    return local_gradients(w, x, y, credit, 0.0, "none")


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("predictive_coding", predictive_coding_reference, penalty, credit_norm)


def feedback(**changes) -> torch.nn.Module:
    options = {name: option.default for name, option in PLUGIN.card.options.items()} | changes
    return PLUGIN.feedback(NetworkShape((2, 2, 2), 2), options, torch.Generator())


@pytest.mark.parametrize(("steps", "step_size"), [(3, 1.0), (7, 0.3)])
def test_fixed_prediction_equals_its_reference(steps, step_size):
    task, images, labels = numpy_checks.reference_task("predictive_coding", 0.0, "none")
    expected = fixed_reference(numpy_checks.arrays(task.network), images.numpy(), labels.numpy(), steps, step_size)
    state = feedback(fixed_prediction=True, steps=steps, step_size=step_size)
    local_credit_step(task.network, task.method, state, images, labels, 0.0, "none")
    for name, parameter in task.network.named_parameters():
        scale = np.abs(expected[name]).max()
        assert parameter.grad.numpy() == pytest.approx(expected[name], rel=1e-9, abs=1e-9 * scale), name


@pytest.mark.parametrize("residual", [True, False])
def test_fixed_prediction_reaches_one_site_further_down_with_every_step(residual):
    inputs, gradients = scaling_inputs([0.3, -0.4], residual)
    for steps in (1, 2, 3):
        credits = PLUGIN.credits(feedback(fixed_prediction=True, step_size=1.0, steps=steps), inputs)
        for site, (credit, gradient) in enumerate(zip(credits, gradients, strict=True)):
            reached = site > len(gradients) - 1 - steps
            assert torch.allclose(credit, gradient if reached else torch.zeros_like(gradient), rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("residual", [True, False])
def test_at_rest_the_credit_is_the_gradient_at_the_relaxed_states(residual):
    """c_{l-1} = J_l c_l and c_L = Wᵀ(W h_L − y), where the relaxed h_L = h_L^0 − P_L c_L, P_l = 1 + J_l² P_{l-1}."""
    factors = [0.3, -0.4]
    jacobians = [factor + residual for factor in factors]
    inputs, _ = scaling_inputs(factors, residual)
    credits = PLUGIN.credits(feedback(steps=2000, step_size=0.1), inputs)
    matrix, weight = 1.0, inputs.network.out_head.weight
    for jacobian in jacobians:
        matrix = 1 + jacobian**2 * matrix
    top = inputs.hidden[-1] - matrix * credits[-1]
    assert torch.allclose(credits[-1], (top @ weight.T - inputs.labels) @ weight, rtol=1e-9)
    for jacobian, below, above in zip(jacobians, credits[:-1], credits[1:], strict=True):
        assert torch.allclose(below, jacobian * above, rtol=1e-9)
