"""ep: the reference implementations of both contrasts, the energy's parameter gradient, and the credits at states of rest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fa_registry import architectures
from fa_registry.architectures.base import noisy
from fa_registry.conformance.small_networks import NetworkCase, Setting
from fa_registry.methods.base import CreditInputs, NetworkShape
from fa_registry.methods.ep import CONTRASTS, PLUGIN
from fa_registry.training.controls import trainable_parameters
from fa_registry.training.method_calls import credits_and_states_of
from fa_registry.training.step import local_credit_step
from tests.helpers import numpy_checks
from tests.helpers.numpy_energy import errors_at, relaxed, scaling_inputs
from tests.helpers.numpy_resmlp import Arrays, branch_back, forward, local_gradients, norm

BETA, STEPS, STEP_SIZE = 0.5, 20, 0.1  # the card's defaults


def parameter_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """Δθ_l ∝ (ε_l^β/β) ∂f_l(h_{l-1}^β)/∂θ, ε^β normed; the penalty at the forward pass, the embedding by c_0 = −ε_0^β/β."""
    states, _, _ = forward(w, x, y)
    nudged = relaxed(w, states, y, BETA, STEPS, STEP_SIZE)
    credits = [-error / BETA for error in errors_at(w, nudged, states[0])]

    def at_the_embedding(states, error, top_gradient):
        return [credits[0], *(0 * credit for credit in credits[1:])]

    grads = local_gradients(w, x, y, at_the_embedding, penalty, kind)
    for block, credit in enumerate(credits[1:], start=1):
        driven: Arrays = {}
        branch_back(w, driven, block, nudged[block - 1], norm(credit, kind) / len(x))
        grads |= {name: grads[name] + gradient for name, gradient in driven.items()}
    return grads


def state_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_l = −(h_l^β − h_l^0)/β, h^β relaxed from the forward pass h^0."""

    def credit(states, error, top_gradient):
        nudged = relaxed(w, states, y, BETA, STEPS, STEP_SIZE)
        return [(free - moved) / BETA for free, moved in zip(states, nudged, strict=True)]

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
@pytest.mark.parametrize("contrast", CONTRASTS)
def test_step_equals_the_reference(contrast, credit_norm, penalty):
    reference = {"parameter": parameter_reference, "state": state_reference}[contrast]
    numpy_checks.check_step("ep", reference, penalty, credit_norm, contrast=contrast)


def test_the_parameters_contrast_is_the_default():
    numpy_checks.check_step("ep", parameter_reference, 0.0, "rms")


@pytest.mark.parametrize("architecture", ["resmlp", "small_cnn", "mlp"])
def test_a_step_is_the_contrast_of_the_energys_own_gradient(architecture):
    """(∂E/∂θ|nudged − ∂E/∂θ|free)/β of blocks and embedding, E formed as it is written and left to autograd."""
    case = Setting(PLUGIN, architectures.CATALOG.get(architecture), {"num_blocks": 2}, 0).case()
    nudged = credits_and_states_of(PLUGIN, case.feedback, case.inputs()).states
    names = [name for name in dict(case.network.named_parameters()) if not name.startswith("out_")]
    phases = [energy_gradient(case, states, names) for states in (nudged, case.network.hidden(case.images))]
    assert all(gradient.abs().max() < 1e-12 for gradient in phases[1].values())  # at rest: every ε_l = 0
    found = case.step()
    for name in names:
        expected = (phases[0][name] - phases[1][name]) / BETA / len(case.labels)
        torch.testing.assert_close(found[name], expected, rtol=1e-9, atol=1e-12, msg=name)


def energy_gradient(case: NetworkCase, states: list[torch.Tensor], names: list[str]) -> dict[str, torch.Tensor]:
    """∂E/∂θ of these parameters with the states held; the loss in E depends on none of them."""
    network, held = case.network, [state.detach() for state in states]
    errors = [held[0] - network.embed(case.images)]
    for block, below, above in zip(network.blocks, held[:-1], held[1:], strict=True):
        errors.append(above - network.step(below, block(below)))
    energy = sum(error.square().sum() for error in errors) / 2
    parameters = dict(network.named_parameters())
    return dict(zip(names, torch.autograd.grad(energy, [parameters[name] for name in names]), strict=True))


def test_a_control_and_process_noise_are_what_they_are_under_every_method():
    """A kept block has no gradient; the blocks' second run, at the nudged states, draws no noise."""
    task = numpy_checks.reference_task("ep", 0.05, "rms")[0]
    trainable_parameters(task.network, "ladder_1")
    images, labels = task.eval_batch
    local_credit_step(task.network, PLUGIN, task.feedback, images, labels, 0.05, "rms")
    had = {
        name.split(".")[1] for name, one in task.network.named_parameters() if "blocks" in name and one.grad is not None
    }
    assert had == {"2"}
    after = {}
    for contrast in CONTRASTS:
        case = Setting(PLUGIN, architectures.CATALOG.get("linear_lq"), {"num_blocks": 2, "learn": True}, 0).case()
        stream = torch.Generator().manual_seed(0)
        with noisy(case.network, stream):
            local_credit_step(case.network, PLUGIN, feedback(contrast=contrast), case.images, case.labels, 0.0, "rms")
        after[contrast] = stream.get_state()
    assert torch.equal(after["parameter"], after["state"])


def test_a_run_recorded_before_there_was_a_choice_is_measured_as_it_was_trained():
    before = {name: option for name, option in options().items() if name != "contrast"}
    inputs, _ = scaling_inputs([0.3, -0.4])
    state = PLUGIN.feedback(NetworkShape((2, 2, 2), 2), before, torch.Generator())
    assert all(map(torch.equal, PLUGIN.credits(state, inputs), PLUGIN.credits(feedback(contrast="state"), inputs)))


@pytest.mark.parametrize("residual", [True, False])
def test_at_rest_the_prediction_error_is_the_gradient(residual):
    """−ε_l/β → g_l, and the states at which the blocks learn are those of the forward pass, as β → 0."""
    inputs, gradients = scaling_inputs([0.3, -0.4], residual)
    found = PLUGIN.credits_and_states(feedback(beta=1e-6, steps=600, step_size=0.2), inputs)
    for credit, gradient, state, free in zip(found.credits, gradients, found.states, inputs.hidden, strict=True):
        assert torch.allclose(credit, gradient, rtol=1e-4)
        assert torch.allclose(state, free, rtol=1e-4, atol=1e-5) and not torch.equal(state, free)


def options(**changes) -> dict:
    return {**{name: option.default for name, option in PLUGIN.card.options.items()}, **changes}


def feedback(**changes) -> torch.nn.Module:
    return PLUGIN.feedback(NetworkShape((2, 2, 2), 2), options(**changes), torch.Generator())


@pytest.mark.parametrize("residual", [True, False])
def test_at_rest_the_displacement_is_the_gradient_through_a_positive_definite_matrix(residual):
    """c_l → P_l g_l with P_l = Σ_{k≤l} J_{k→l}²; every Jacobian here is a number."""
    factors = [0.3, -0.4]
    jacobians = [factor + residual for factor in factors]
    inputs, gradients = scaling_inputs(factors, residual)
    credits = PLUGIN.credits(feedback(contrast="state", beta=1e-6, steps=600, step_size=0.2), inputs)
    matrix = 1.0
    assert torch.allclose(credits[0], gradients[0], rtol=1e-4)
    for jacobian, credit, gradient in zip(jacobians, credits[1:], gradients[1:], strict=True):
        matrix = 1 + jacobian**2 * matrix
        assert torch.allclose(credit, matrix * gradient, rtol=1e-4)


@pytest.mark.parametrize("contrast", CONTRASTS)
def test_one_step_moves_the_last_state_alone_and_against_its_gradient(contrast):
    inputs, gradients = scaling_inputs([0.3, -0.4])
    credits = PLUGIN.credits(feedback(contrast=contrast, steps=1, step_size=0.2), inputs)
    assert [credit.abs().max().item() for credit in credits[:-1]] == [0.0, 0.0]
    assert torch.allclose(credits[-1], 0.2 * gradients[-1], rtol=1e-12)


def test_process_noise_reaches_no_credit_and_is_drawn_no_more_than_without():
    case = Setting(PLUGIN, architectures.CATALOG.get("linear_lq"), {"num_blocks": 2, "learn": True}, 0).case()
    inputs, stream = case.inputs(), torch.Generator().manual_seed(0)
    expected, before = case.credits(inputs), stream.get_state()
    with noisy(case.network, stream):
        found = case.credits(inputs)
        assert torch.equal(stream.get_state(), before)
        assert all(block.noise is stream for block in case.network.blocks)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("contrast", CONTRASTS)
def test_shifts_far_below_the_states_keep_their_digits_in_float32(contrast):
    """At β = 1e-5 a state moves by about its rounding error times a hundred: read off the states, credits are 1 % off."""
    inputs, _ = scaling_inputs([0.01, -0.01])
    state = feedback(contrast=contrast, beta=1e-5)
    expected = PLUGIN.credits(state, inputs)
    found = PLUGIN.credits(state, single(inputs))
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == torch.float32
        assert torch.allclose(left.double(), right, rtol=1e-3)


def single(inputs: CreditInputs) -> CreditInputs:
    """The same in float32, the network in place."""
    inputs.network.float()
    return dataclasses.replace(inputs, hidden=[state.float() for state in inputs.hidden], labels=inputs.labels.float())
