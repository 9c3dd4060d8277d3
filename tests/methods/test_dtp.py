"""dtp: the reference implementations of credit and inverse loss, and what an exact inverse makes of the credit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry.methods.base import NetworkShape
from fa_registry.methods.dtp import PLUGIN
from tests.helpers import numpy_checks
from tests.helpers.bridges import seen, slopes
from tests.helpers.numpy_energy import scaling_inputs
from tests.helpers.numpy_mlp import value
from tests.helpers.numpy_resmlp import Arrays, branch, forward, local_gradients

SIGMA, TARGET_STEP = 0.3, 1.0  # the card's defaults


def invert(feedback: Arrays, block: int, state: np.ndarray) -> np.ndarray:
    return value(feedback, f"nets.{block - 1}", state)


def dtp_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """t_L = h_L − η̂ g_L; t_{l-1} = h_{l-1} + inv_l(t_l) − inv_l(h_l); c_l = (h_l − t_l)/η̂."""

    def credit(states, error, top_gradient):
        targets = [states[-1] - TARGET_STEP * top_gradient]
        for block in range(len(states) - 1, 0, -1):
            moved = invert(feedback, block, targets[0]) - invert(feedback, block, states[block])
            targets.insert(0, states[block - 1] + moved)
        return [(state - target) / TARGET_STEP for state, target in zip(states, targets, strict=True)]

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("dtp", dtp_reference, penalty, credit_norm)


def loss_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray) -> float:
    """Σ_l mean_i ‖inv_l(h̃ + f_l(h̃)) − h̃‖², h̃ = h_{l-1} + σξ; ξ drawn site by site from a generator of seed 0."""
    states, branches, _ = forward(w, x, y)
    stream, total = torch.Generator().manual_seed(0), 0.0
    for block in range(1, len(branches) + 1):
        noise = torch.randn(states[0].shape, generator=stream, dtype=torch.float64).numpy()
        corrupted = states[block - 1] + SIGMA * noise
        missed = invert(feedback, block, corrupted + branch(w, block, corrupted)) - corrupted
        total += (missed**2).sum(axis=1).mean()
    return float(total)


def test_the_inverse_loss_and_its_gradient_equal_the_reference():
    task, images, labels = numpy_checks.reference_task("dtp", 0.0, "none")
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)

    def reference(moved: Arrays) -> float:
        return loss_reference(weights, moved, images.numpy(), labels.numpy())

    loss = PLUGIN.feedback_loss(task.feedback, seen(task, images, labels))
    assert loss.item() == pytest.approx(reference(feedback), rel=1e-12)
    loss.backward()
    found, expected = slopes(reference, feedback, task.feedback)
    assert found == pytest.approx(expected, rel=1e-7)
    assert all(parameter.grad is None for parameter in task.network.parameters())


def options(**changes) -> dict:
    return {name: option.default for name, option in PLUGIN.card.options.items()} | changes


def exact_inverses(jacobians: list[float], skip: bool = False, **changes) -> nn.Module:
    """inv_l(h) = h / J_l, by itself or as h + (1/J_l − 1) h."""
    state = PLUGIN.feedback(NetworkShape((2, 2, 2), 2), options(skip=skip, **changes), torch.Generator())
    for index, jacobian in enumerate(jacobians):
        state.nets[index] = nn.Linear(2, 2, bias=False, dtype=torch.float64)
        with torch.no_grad():
            state.nets[index].weight.copy_(torch.eye(2, dtype=torch.float64) * (1 / jacobian - skip))
    return state


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("skip", [True, False])
def test_exact_inverses_carry_the_credit_through_the_inverse_jacobian(residual, skip):
    """c_{l-1} = c_l / J_l, where backpropagation has c_l J_l: equal for J = ±1 alone. And the inverse loss is zero."""
    factors = [0.3, -0.4]
    jacobians = [factor + residual for factor in factors]
    inputs, gradients = scaling_inputs(factors, residual)
    state = exact_inverses(jacobians, skip, target_step=0.7)
    zero, one, two = PLUGIN.credits(state, inputs)
    assert torch.equal(two, gradients[2])
    assert torch.allclose(one, gradients[2] / jacobians[1], rtol=1e-12)
    assert torch.allclose(zero, gradients[2] / jacobians[1] / jacobians[0], rtol=1e-12)
    assert PLUGIN.feedback_loss(state, inputs).item() == pytest.approx(0.0, abs=1e-25)


@pytest.mark.parametrize("residual", [True, False])
def test_orthogonal_jacobians_make_it_backpropagation(residual):
    factors = [-2.0, 0.0] if residual else [-1.0, 1.0]
    inputs, gradients = scaling_inputs(factors, residual)
    for credit, gradient in zip(PLUGIN.credits(exact_inverses([-1.0, 1.0]), inputs), gradients, strict=True):
        assert torch.allclose(credit, gradient, rtol=1e-12)


def test_the_credit_is_the_target_difference_over_the_target_step():
    """A tanh inverse, so that the step counts: c_0 = (tanh(h_1) − tanh(h_1 − η̂ g_1))/η̂."""
    inputs, gradients = scaling_inputs([0.3])
    for step in (0.5, 2.0):
        state = PLUGIN.feedback(NetworkShape((2, 2), 2), options(target_step=step), torch.Generator())
        state.nets[0] = nn.Tanh()
        below, _ = PLUGIN.credits(state, inputs)
        expected = (inputs.hidden[1].tanh() - (inputs.hidden[1] - step * gradients[1]).tanh()) / step
        assert torch.allclose(below, expected, rtol=1e-12)


def test_inverses_run_from_a_blocks_output_to_its_input_and_skip_where_widths_agree():
    for skip in (True, False):
        drawn = PLUGIN.feedback(NetworkShape((7, 5, 5), 4), options(skip=skip, hidden=30), torch.Generator())
        shapes = [tuple(value.shape) for name, value in drawn.state_dict().items() if name.endswith("weight")]
        assert shapes == [(30, 5), (7, 30), (30, 5), (5, 30)]
        row = torch.ones(3, 5)
        assert torch.equal(drawn.invert(1, row), drawn.nets[0](row))
        assert torch.equal(drawn.invert(2, row), row + drawn.nets[1](row) if skip else drawn.nets[1](row))


def test_an_inverse_without_a_hidden_layer_is_that_of_the_source():
    """inv_l(h) = tanh(h V_lᵀ + v_l), as on the card."""
    drawn = PLUGIN.feedback(NetworkShape((7, 5, 5), 4), options(hidden=0), torch.Generator()).double()
    assert [tuple(value.shape) for value in drawn.state_dict().values()] == [(7, 5), (7,), (5, 5), (5,)]
    rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = {name: value.detach().numpy() for name, value in drawn.state_dict().items()}
    for block in (1, 2):
        expected = np.tanh(rows.numpy() @ weights[f"nets.{block - 1}.0.weight"].T + weights[f"nets.{block - 1}.0.bias"])
        assert drawn.invert(block, rows).detach().numpy() == pytest.approx(expected, rel=1e-12)


def test_weights_are_uniform_in_one_over_root_fan_in():
    drawn = PLUGIN.feedback(NetworkShape((300, 300), 4), options(), torch.Generator().manual_seed(0)).state_dict()
    for weight in (tensor for name, tensor in drawn.items() if name.endswith("weight")):
        assert weight.abs().max().item() <= weight.shape[1] ** -0.5
        assert weight.var().item() == pytest.approx(1 / (3 * weight.shape[1]), rel=0.02)
