"""mono_forward: the reference implementations of credit and loss, by sample and by position, and what the heads read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fa_registry.methods.base import CreditInputs, NetworkShape
from fa_registry.methods.mono_forward import PLUGIN, MonoForward
from fa_registry.tasks.token_prediction import IGNORED
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.bridges import seen
from tests.helpers.numpy_resmlp import Arrays, forward, local_gradients
from tests.helpers.tiny_tasks import tiny_task

CLASSES = 5
WIDTHS = (4, 6, 3)


def softmax(z: np.ndarray) -> np.ndarray:
    power = np.exp(z - z.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)


def local_errors(matrices: Arrays, states: list[np.ndarray], onehot: np.ndarray) -> list[np.ndarray]:
    """p_l − onehot(y) of G_l = M_l h_l."""
    return [softmax(state @ matrices[f"M_{site:02d}"].T) - onehot for site, state in enumerate(states)]


def mono_forward_reference(
    w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str
) -> Arrays:
    """c_l = M_lᵀ (p_l − onehot(y))."""

    def credit(states, error, top_gradient):
        errors = local_errors(feedback, states, np.eye(error.shape[1])[y])
        return [local @ feedback[f"M_{site:02d}"] for site, local in enumerate(errors)]

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("mono_forward", mono_forward_reference, penalty, credit_norm)


def test_the_loss_of_the_heads_and_its_gradient_equal_the_reference():
    task, images, labels = numpy_checks.reference_task("mono_forward", 0.0, "none")
    weights, matrices, y = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback), labels.numpy()
    states, _, _ = forward(weights, images.numpy(), y)
    inputs = seen(task, images, labels)
    loss = PLUGIN.feedback_loss(task.feedback, inputs)
    loss.backward()
    errors = local_errors(matrices, states, np.eye(10)[y])
    probable = [error[np.arange(len(y)), y] + 1 for error in errors]
    assert loss.item() == pytest.approx(-sum(np.log(one).mean() for one in probable), rel=1e-12)
    for site, (error, state) in enumerate(zip(errors, states, strict=True)):
        expected = error.T @ state / len(y)
        assert task.feedback.matrix(site).grad.numpy() == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert all(parameter.grad is None for parameter in task.network.parameters())


def of_states(states: list[torch.Tensor], labels: torch.Tensor) -> tuple[torch.nn.Module, CreditInputs]:
    """Heads in float64, and the inputs of one batch with these states."""
    feedback = PLUGIN.feedback(NetworkShape(WIDTHS, CLASSES), {}, torch.Generator().manual_seed(2)).double()
    unused = torch.zeros(len(labels), CLASSES, dtype=torch.float64)
    return feedback, CreditInputs(states, unused, unused, states[-1], labels=labels)


@torch.no_grad()
def credits_of(feedback: torch.nn.Module, inputs: CreditInputs, method: MonoForward = PLUGIN) -> list[torch.Tensor]:
    return method.credits(feedback, inputs)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_tokens_have_a_credit_at_every_position_that_counts():
    labels = torch.tensor([[0, 3, IGNORED], [4, IGNORED, 1]])
    feedback, inputs = of_states([drawn(2, 3, width) for width in WIDTHS], labels)
    counts = (labels != IGNORED).numpy()[..., None]
    onehot = np.eye(CLASSES)[labels.clamp(min=0).numpy()]
    matrices = numpy_checks.arrays(feedback)
    errors = [one * counts for one in local_errors(matrices, [state.numpy() for state in inputs.hidden], onehot)]
    for site, credit in enumerate(credits_of(feedback, inputs)):
        assert credit.numpy() == pytest.approx(errors[site] @ matrices[f"M_{site:02d}"], rel=1e-10, abs=1e-12)
    loss = PLUGIN.feedback_loss(feedback, inputs)
    probable = [((error + onehot) * onehot).sum(axis=2)[counts[..., 0]] for error in errors]  # p_l[y]
    assert loss.item() == pytest.approx(-sum(np.log(one).sum() for one in probable) / len(labels), rel=1e-12)
    loss.backward()
    for site, error in enumerate(errors):
        expected = np.einsum("ntc,ntd->cd", error, inputs.hidden[site].numpy()) / len(labels)
        assert feedback.matrix(site).grad.numpy() == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("positions", [(), (3,), (3, 2)])
def test_an_images_head_reads_the_mean_over_positions(positions):
    labels = torch.tensor([2, 0])
    states = [drawn(2, width, *positions) for width in WIDTHS]
    means = [state.flatten(2).mean(dim=2) if positions else state for state in states]
    if len(positions) == 1:
        states = [state.transpose(1, 2) for state in states]  # patches have their features last
    feedback, inputs = of_states(states, labels)
    expected = credits_of(feedback, dataclasses.replace(inputs, hidden=means))
    for credit, one in zip(credits_of(feedback, inputs), expected, strict=True):
        assert credit.shape == one.shape and torch.allclose(credit, one, rtol=1e-12, atol=1e-14)


def test_the_heads_of_a_regression_have_a_squared_error():
    targets = drawn(2, CLASSES)
    feedback, inputs = of_states([drawn(2, width) for width in WIDTHS], targets)
    for site, credit in enumerate(credits_of(feedback, inputs)):
        matrix = feedback.matrix(site)
        assert torch.allclose(credit, (inputs.hidden[site] @ matrix.T - targets) @ matrix, rtol=1e-12, atol=1e-14)


def test_heads_are_drawn_with_the_width_of_their_site():
    heads = PLUGIN.feedback(NetworkShape((400, 900), CLASSES), {}, torch.Generator().manual_seed(0)).state_dict()
    assert {name: tuple(value.shape) for name, value in heads.items()} == {"M_00": (5, 400), "M_01": (5, 900)}
    for name, width in (("M_00", 400), ("M_01", 900)):
        assert heads[name].abs().max().item() <= width**-0.5
        assert heads[name].var().item() == pytest.approx(1 / (3 * width), rel=0.1)


class Opposite(MonoForward):
    def credits(self, feedback, inputs):
        return [-credit for credit in super().credits(feedback, inputs)]


def test_heads_and_network_learn_and_do_not_with_the_opposite_credit():
    sizes = {"d_hidden": 64, "num_blocks": 2}
    fields = {"architecture": "mlp", "architecture_options": sizes, "learning_rate": 0.003, "schedule": "constant"}
    losses = []
    for method in (PLUGIN, Opposite()):
        trainer = Trainer(dataclasses.replace(tiny_task(method="mono_forward", epochs=6, **fields), method=method))
        start = trainer.setup.feedback.M_02.detach().clone()
        losses.append([trainer.run_epoch()["loss_train"].value for _ in range(6)])
        assert (trainer.setup.feedback.M_02 - start).norm() > 0.1 * start.norm()
    assert losses[0][-1] < 0.9 * losses[0][0] and losses[0][-1] < losses[1][-1] - 0.2


def test_a_step_along_the_credit_lowers_the_local_loss():
    feedback, inputs = of_states([drawn(2, width) for width in WIDTHS], torch.tensor([2, 0]))
    losses = []
    for method in (PLUGIN, Opposite()):
        moved = [
            state - 0.01 * credit
            for state, credit in zip(inputs.hidden, credits_of(feedback, inputs, method), strict=True)
        ]
        losses.append(PLUGIN.feedback_loss(feedback, dataclasses.replace(inputs, hidden=moved)).item())
    assert losses[0] < PLUGIN.feedback_loss(feedback, inputs).item() < losses[1]
