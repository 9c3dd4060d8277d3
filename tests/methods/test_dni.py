"""dni: the reference implementations of credit and loss, the bootstrapped target, and the inputs of a net."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry.methods.base import NetworkShape
from fa_registry.methods.dni import PLUGIN
from tests.helpers import numpy_checks
from tests.helpers.bridges import seen, slopes
from tests.helpers.numpy_energy import pulled, scaling_inputs
from tests.helpers.numpy_mlp import value
from tests.helpers.numpy_resmlp import Arrays, forward, head_back, local_gradients, standardise


def predicted(feedback: Arrays, states: list[np.ndarray], y: np.ndarray, classes: int) -> list[np.ndarray]:
    """ĝ_l = M_l(LN(h_l), onehot(y)) for l < L; LN without weights."""
    inputs = [np.hstack([standardise(state)[0], np.eye(classes)[y]]) for state in states[:-1]]
    return [value(feedback, f"nets.{site}", rows) for site, rows in enumerate(inputs)]


def dni_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_l = ĝ_l, c_L = g_L."""

    def credit(states, error, top_gradient):
        return [*predicted(feedback, states, y, error.shape[1]), top_gradient]

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("dni", dni_reference, penalty, credit_norm)


def loss_reference(w: Arrays, feedback: Arrays, held: Arrays, x: np.ndarray, y: np.ndarray) -> float:
    """Σ_l Σ_i ‖ĝ_l − t_l‖² / Σ_i ‖t_l‖², t_l = ĝ_{l+1} (I + ∂f_{l+1}/∂h_l) with the ĝ of the `held` nets, ĝ_L = g_L."""
    states, _, error = forward(w, x, y)
    guesses = predicted(held, states, y, error.shape[1])
    targets = pulled(w, states, [states[0], *guesses[1:], head_back(w, {}, states[-1], error)])
    pairs = zip(predicted(feedback, states, y, error.shape[1]), targets, strict=True)
    return float(sum(((guess - target) ** 2).sum() / (target**2).sum() for guess, target in pairs))


@pytest.mark.parametrize("hidden", [0, 12])
def test_the_loss_and_its_gradient_equal_the_reference(hidden):
    task, images, labels = numpy_checks.reference_task("dni", 0.0, "none")
    widths = NetworkShape((16,) * 4, 10)
    feedback = PLUGIN.feedback(widths, options(hidden=hidden), torch.Generator().manual_seed(1)).double()
    weights, drawn = numpy_checks.arrays(task.network), numpy_checks.arrays(feedback)

    def reference(moved: Arrays) -> float:
        return loss_reference(weights, moved, drawn, images.numpy(), labels.numpy())

    task = dataclasses.replace(task, feedback=feedback)
    loss = PLUGIN.feedback_loss(feedback, seen(task, images, labels))
    assert loss.item() == pytest.approx(reference(drawn), rel=1e-12)
    loss.backward()
    found, expected = slopes(reference, drawn, feedback)
    assert found == pytest.approx(
        expected, rel=1e-6
    )  # targets are small, so a central difference of the ratio is curved
    assert all(parameter.grad is None for parameter in task.network.parameters())


def options(**changes) -> dict:
    return {name: option.default for name, option in PLUGIN.card.options.items()} | changes


class FixedAnswer(nn.Module):
    """A net with a fixed answer."""

    def __init__(self, answer: torch.Tensor):
        super().__init__()
        self.answer = answer

    def forward(self, rows):
        return self.answer


@pytest.mark.parametrize("residual", [True, False])
def test_exact_predictions_are_the_one_fixed_point_of_the_bootstrap(residual):
    """Nets that answer g_l have no loss; doubling M_l alone costs ‖g_l‖²/‖g_l‖² = 1 at its own site, and below it 1/4."""
    inputs, gradients = scaling_inputs([0.3, -0.4, 0.2], residual)
    state = PLUGIN.feedback(NetworkShape((2,) * 4, 2), options(), torch.Generator())
    exact = [FixedAnswer(gradient) for gradient in gradients[:-1]]
    costs = []
    for doubled in (None, 0, 1, 2):
        state.nets = nn.ModuleList(
            FixedAnswer(2 * one.answer) if site == doubled else one for site, one in enumerate(exact)
        )
        costs.append(PLUGIN.feedback_loss(state, inputs).item())
    assert costs == pytest.approx([0.0, 1.0, 1.25, 1.25], abs=1e-12)


@pytest.mark.parametrize(("conditioning", "size"), [("label", 4), ("none", 0)])
@pytest.mark.parametrize("hidden", [0, 30])
def test_nets_see_the_state_and_what_the_option_says(conditioning, size, hidden):
    shape = NetworkShape((7, 5, 6), 4)
    drawn = PLUGIN.feedback(shape, options(conditioning=conditioning, hidden=hidden), torch.Generator())
    shapes = [tuple(value.shape) for name, value in drawn.state_dict().items() if name.endswith("weight")]
    wide = [(hidden, 7 + size), (7, hidden), (hidden, 5 + size), (5, hidden)]
    assert shapes == (wide if hidden else [(7, 7 + size), (5, 5 + size)])


def test_labels_change_the_credit_only_where_it_is_conditioned_on_them():
    task, images, labels = numpy_checks.reference_task("dni", 0.0, "none")
    inputs = seen(task, images, labels)
    other = dataclasses.replace(inputs, onehot=inputs.onehot.roll(1, dims=1))
    for conditioning in ("label", "none"):
        state = PLUGIN.feedback(
            NetworkShape((16,) * 4, 10), options(conditioning=conditioning), torch.Generator()
        ).double()
        same = [
            torch.equal(*pair) for pair in zip(PLUGIN.credits(state, inputs), PLUGIN.credits(state, other), strict=True)
        ]
        assert same == [conditioning == "none"] * 3 + [True]


def test_the_first_guess_is_a_hundredth_of_the_default_draw():
    drawn = PLUGIN.feedback(NetworkShape((300, 300), 4), options(), torch.Generator().manual_seed(0)).state_dict()
    weight = drawn["nets.0.0.weight"]
    assert weight.abs().max().item() <= 0.01 * 304**-0.5
    assert weight.var().item() == pytest.approx(1e-4 / (3 * 304), rel=0.02)


def test_a_batch_without_any_gradient_has_a_finite_loss():
    inputs, _ = scaling_inputs([0.3, -0.4])
    still = dataclasses.replace(inputs, output_gradient=torch.zeros_like(inputs.output_gradient))
    state = PLUGIN.feedback(NetworkShape((2,) * 3, 2), options(), torch.Generator()).double()
    assert PLUGIN.feedback_loss(state, still).isfinite()
