"""forward_forward: the reference implementation, the slopes against autograd's, which label is shown, and what is refused."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot, softplus

from fa_registry.architectures.mlp import PLUGIN as MLP
from fa_registry.architectures.resmlp import PLUGIN as RESMLP
from fa_registry.conformance.small_networks import Setting
from fa_registry.errors import UsageError
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.forward_forward import PLUGIN, ForwardForward, hardest_wrong, local_slope, with_label
from fa_registry.training.loop import train
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.numpy_resmlp import Arrays, forward, local_gradients
from tests.helpers.tiny_tasks import Recorder, tiny_task

SMALL = {"d_hidden": 16, "num_blocks": 3, "w2_std": 0.5}
THRESHOLD = 1.0


def sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def goodness(h: np.ndarray) -> np.ndarray:
    return (h * h).mean(axis=1, keepdims=True)


def labelled(x: np.ndarray, label: np.ndarray, classes: int = 10) -> np.ndarray:
    """x with the label in its first pixels."""
    shown = x.reshape(len(x), -1).copy()
    shown[:, :classes] = np.eye(classes)[label]
    return shown


def forward_forward_reference(
    w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str
) -> Arrays:
    """c_l = (2/D)(σ(G⁻ − θ) h⁻ − σ(θ − G⁺) h⁺), h⁺ under y, h⁻ under the wrong class of the largest error."""

    def credit(states, error, top_gradient):
        wrong = np.where(np.eye(10)[y] == 1, -np.inf, error).argmax(axis=1)  # e = p where the class is wrong
        true, false = (forward(w, labelled(x, label), y)[0] for label in (y, wrong))
        return [
            2 * (sigmoid(goodness(n) - THRESHOLD) * n - sigmoid(THRESHOLD - goodness(p)) * p) / p.shape[1]
            for p, n in zip(true, false, strict=True)
        ]

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("forward_forward", forward_forward_reference, penalty, credit_norm)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_optimiser_equals_the_reference(penalty):
    numpy_checks.check_optimiser("forward_forward", forward_forward_reference, penalty, "rms")


@pytest.mark.parametrize("threshold", [0.3, 1.0, 4.0])
def test_the_slope_is_autograds_of_the_local_loss(threshold):
    stream = torch.Generator().manual_seed(1)
    positive, negative = (
        torch.randn(7, 5, generator=stream, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    up, down = (state.pow(2).mean(dim=1) for state in (positive, negative))
    loss = (softplus(threshold - up) + softplus(down - threshold)).sum()
    expected = sum(torch.autograd.grad(loss, (positive, negative)))
    found = local_slope(positive.detach(), negative.detach(), threshold)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_descent_raises_the_goodness_of_the_true_label_and_lowers_the_wrong_ones():
    zero = torch.zeros(1, 3)
    state = torch.tensor([[1.0, -2.0, 0.5]])
    assert (local_slope(state, zero, 1.0) * state).sum() < 0  # −c points along h⁺
    assert (local_slope(zero, state, 1.0) * state).sum() > 0


def test_the_wrong_label_is_the_most_probable_wrong_one():
    case = Setting(PLUGIN, RESMLP, SMALL, 0).case()
    probable = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.35, 0.25]], dtype=torch.float64)
    onehot = one_hot(torch.tensor([0, 2, 1]), 3).double()
    inputs = dataclasses.replace(case.inputs(), error=probable - onehot, onehot=onehot)
    assert hardest_wrong(inputs).tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_a_certain_network_still_finds_a_wrong_class():
    case = Setting(PLUGIN, RESMLP, SMALL, 0).case()
    onehot = one_hot(torch.tensor([0, 1]), 3).double()
    inputs = dataclasses.replace(case.inputs(), error=torch.zeros(2, 3, dtype=torch.float64), onehot=onehot)
    assert (hardest_wrong(inputs) * onehot).sum() == 0


def test_the_label_takes_the_first_pixels_and_leaves_the_others():
    images = torch.arange(24.0).reshape(2, 1, 3, 4)
    shown = with_label(images, torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]]))
    assert shown.shape == images.shape
    assert shown.flatten(1)[:, :5].tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert torch.equal(shown.flatten(1)[:, 5:], images.flatten(1)[:, 5:])
    assert images[0, 0, 0].tolist() == [0, 1, 2, 3]  # not in place


def test_every_label_is_shown_where_the_image_has_just_enough_pixels():
    assert PLUGIN.feedback(NetworkShape((4, 4), 10, image=(1, 2, 5)), {"threshold": 1.0}, torch.Generator())
    with pytest.raises(UsageError, match="at least 10 pixels .one per class., found 9"):
        PLUGIN.feedback(NetworkShape((4, 4), 10, image=(1, 3, 3)), {"threshold": 1.0}, torch.Generator())


def test_targets_that_are_values_are_refused():
    case = Setting(PLUGIN, MLP, {"d_hidden": 16, "num_blocks": 1}, 0).case()
    inputs = dataclasses.replace(case.inputs(), labels=torch.zeros(128, 5, dtype=torch.float64))
    with pytest.raises(UsageError, match="'forward_forward' needs class labels"):
        case.credits(inputs)


def test_the_threshold_is_an_option_that_matters():
    case = Setting(PLUGIN, RESMLP, SMALL, 0).case()
    inputs = case.inputs()
    before = case.credits(inputs)
    case.feedback.threshold = 3.0
    assert not any(torch.allclose(*pair) for pair in zip(before, case.credits(inputs), strict=True))


class Opposite(ForwardForward):
    def credits(self, feedback, inputs):
        return [-credit for credit in super().credits(feedback, inputs)]


@pytest.mark.long
def test_it_learns_and_its_opposite_does_not():
    """Unlike a random B, a goodness has a sign: the head reads what the blocks make of the clean image."""
    sizes = {"d_hidden": 64, "num_blocks": 2, "w2_std": 0.01}
    task = tiny_task(
        method="forward_forward", epochs=15, learning_rate=0.003, schedule="constant", architecture_options=sizes
    )
    start, losses = copy.deepcopy(task.network.state_dict()), []
    for method in (task.method, Opposite()):
        task.network.load_state_dict(start)
        recorder = Recorder()
        train(Trainer(dataclasses.replace(task, method=method)), recorder)
        losses.append(recorder.rows[-1].measurements.scalars["loss_train"].value)
    assert losses[0] < 2.2 and losses[1] > 2.28  # ln 10 = 2.30
