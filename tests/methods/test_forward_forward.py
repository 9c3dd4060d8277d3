"""forward_forward: the reference implementation, slopes against autograd's, labels, what it reaches, and what is refused."""

from __future__ import annotations

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
from fa_registry.methods.forward_forward import (
    PLUGIN,
    ForwardForward,
    hardest_wrong,
    local_slope,
    normalised,
    with_label,
)
from fa_registry.tasks.classification import accuracy
from fa_registry.training.method_calls import credits_and_states_of
from fa_registry.training.step import local_credit_step
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.numpy_checks import arrays
from tests.helpers.numpy_resmlp import Arrays, branch, branch_back, forward, head_back, linear, linear_back, norm
from tests.helpers.tiny_tasks import double, tiny_task

SMALL = {"d_hidden": 16, "num_blocks": 3, "w2_std": 0.5}
THRESHOLD, CLASSES, LAYERS = 1.0, 10, 3
SAMPLES = 23
Pass = tuple[list[np.ndarray], list[np.ndarray]]  # states h_0..h_L, and what block l reads, at l − 1


def sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def labelled(x: np.ndarray, label: np.ndarray) -> np.ndarray:
    """x with the label in its first pixels, (N, pixels)."""
    shown = x.reshape(len(x), -1).copy()
    shown[:, :CLASSES] = np.eye(CLASSES)[label]
    return shown


def unit(h: np.ndarray) -> np.ndarray:
    return h / (np.sqrt((h * h).mean(axis=1, keepdims=True)) + 1e-6)


def states_of(w: Arrays, x: np.ndarray) -> Pass:
    """h_0 = embed(x), s = unit(h_{l-1}), h_l = s + f_l(s) on resmlp; h_0 = x, h_l = relu(W_l s + b_l) on mlp."""
    is_residual = "embed.weight" in w
    states, read = [linear(w, "embed", x) if is_residual else x], []
    for layer in range(LAYERS):
        read.append(unit(states[-1]))
        if is_residual:
            states.append(read[-1] + branch(w, layer + 1, read[-1]))
        else:
            states.append(np.maximum(linear(w, f"blocks.{layer}.w", read[-1]), 0))
    return states, read


def scores(w: Arrays, x: np.ndarray, first: int = 2) -> np.ndarray:
    """z_k = Σ_{l ≥ first} mean_d h_l(x_k)², (N, C)."""
    by_class = []
    for k in range(CLASSES):
        states, _ = states_of(w, labelled(x, np.full(len(x), k)))
        by_class.append(sum((h * h).mean(axis=1) for h in states[first:]))
    return np.stack(by_class, axis=1)


def passes(w: Arrays, x: np.ndarray, y: np.ndarray):
    """Yield (images, what the blocks read, c_0..c_L) of the positive and of the negative pass."""
    wrong = np.where(np.eye(CLASSES)[y] == 1, -np.inf, scores(w, x)).argmax(axis=1)
    for sign, label in ((-1, y), (1, wrong)):
        images = labelled(x, label)
        states, read = states_of(w, images)
        drives = [sigmoid(sign * ((h * h).mean(axis=1, keepdims=True) - THRESHOLD)) for h in states]
        yield images, read, [sign * 2 / h.shape[1] * drive * h for h, drive in zip(states, drives, strict=True)]


def on_resmlp(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """The head by the forward pass without a label, which also has the penalty; blocks and embedding by both passes."""
    states, branches, error = forward(w, x, y)
    total: Arrays = {}
    head_back(w, total, states[-1], error / len(x))
    parts: list[Arrays] = [{}]
    for block, f in enumerate(branches, start=1):
        branch_back(w, parts[0], block, states[block - 1], 2 * penalty * f / len(x))
    for images, read, credits in passes(w, x, y):
        part: Arrays = {}
        rows = [norm(c, kind) / len(x) for c in credits]
        for block in range(1, LAYERS + 1):
            branch_back(w, part, block, read[block - 1], rows[block])
        linear_back(w, part, "embed", images, rows[0])
        parts.append(part)
    for name in parts[1]:
        total[name] = sum(part[name] for part in parts if name in part)
    return total


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("forward_forward", on_resmlp, penalty, credit_norm)


def test_optimiser_equals_the_reference():
    numpy_checks.check_optimiser("forward_forward", on_resmlp, 0.05, "rms")


@pytest.fixture
def perceptron():
    """A float64 run of mlp with random biases, so that no unit is dead, and some test samples."""
    sizes = {"d_hidden": 16, "num_blocks": LAYERS}
    setup = double(tiny_task(method="forward_forward", architecture="mlp", architecture_options=sizes))
    with torch.no_grad():
        for parameter in setup.network.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(11)).double() * 0.1)
    return setup, setup.splits.test_images[:SAMPLES], setup.splits.test_labels[:SAMPLES]


@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_a_step_without_skips_is_that_of_the_equations(perceptron, credit_norm):
    setup, images, labels = perceptron
    w, x, y = arrays(setup.network), images.numpy(), labels.numpy()
    expected = dict.fromkeys([name for name in w if name.startswith("blocks")], 0.0)
    for _, read, credits in passes(w, x, y):
        for layer, below in enumerate(read):
            delta = norm(credits[layer + 1], credit_norm) / len(
                x
            )  # relu: its slope is 1 where h > 0, and c = 0 elsewhere
            expected[f"blocks.{layer}.w.weight"] += delta.T @ below
            expected[f"blocks.{layer}.w.bias"] += delta.sum(axis=0)
    local_credit_step(setup.network, setup.method, setup.feedback, images, labels, 0.0, credit_norm)
    for name, gradient in expected.items():
        found = setup.network.get_parameter(name).grad.numpy()
        assert np.abs(found - gradient).max() <= 1e-10 * np.abs(gradient).max()


@pytest.mark.parametrize("first_block", [1, 2, 3])
def test_scores_are_those_of_the_equations(perceptron, first_block):
    setup, images, _ = perceptron
    setup.feedback.first_block = first_block
    expected = scores(arrays(setup.network), images.numpy(), first_block)
    with torch.no_grad():
        found = setup.predictor.eval()(images).numpy()
    assert np.abs(found - expected).max() <= 1e-10 * expected.max()


def test_a_network_with_fewer_blocks_predicts_with_its_last():
    options = {"threshold": 1.0, "first_block": 5}
    shape = NetworkShape((144, 16, 16), 10, image=(1, 12, 12))
    assert PLUGIN.feedback(shape, options, torch.Generator()).first_block == 2


@pytest.mark.parametrize("threshold", [0.3, 1.0, 4.0])
def test_the_slope_is_autograds_of_the_local_loss(threshold):
    stream = torch.Generator().manual_seed(1)
    positive, negative = (
        torch.randn(7, 5, generator=stream, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    up, down = (state.pow(2).mean(dim=1) for state in (positive, negative))
    loss = (softplus(threshold - up) + softplus(down - threshold)).sum()
    expected = torch.cat(torch.autograd.grad(loss, (positive, negative)))
    found = local_slope(torch.cat([positive, negative]).detach(), threshold)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_a_block_cannot_read_the_goodness_of_the_block_below():
    state = torch.randn(4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert torch.allclose(normalised(state * 7), normalised(state), rtol=1e-5)
    assert torch.allclose(normalised(state).square().mean(dim=1), torch.ones(4, dtype=torch.float64), rtol=1e-5)
    assert torch.equal(normalised(torch.zeros(2, 3)), torch.zeros(2, 3))


def test_each_pass_trains_at_its_own_states_and_images():
    case = Setting(PLUGIN, RESMLP, SMALL, 0).case()
    inputs = case.inputs()
    found = credits_and_states_of(PLUGIN, case.feedback, inputs)
    count = len(inputs.labels)
    assert [len(rows) for rows in (found.images, *found.credits, *found.states)] == [2 * count] * 9
    assert torch.equal(found.images[:count].flatten(1)[:, :5], inputs.onehot)
    assert not (found.images[count:].flatten(1)[:, :5] * inputs.onehot).any()
    for credit, passes_of_it in zip(case.credits(inputs), found.credits, strict=True):
        torch.testing.assert_close(credit, passes_of_it[:count] + passes_of_it[count:], rtol=0, atol=0)


def test_the_wrong_label_is_the_wrong_class_with_the_highest_score():
    onehot = one_hot(torch.tensor([0, 2, 1]), 3).double()
    goodness = torch.tensor([[0.5, 0.3, 0.2], [-0.1, -0.2, 0.7], [0.4, 0.35, 0.25]], dtype=torch.float64)
    assert hardest_wrong(goodness, onehot).tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert (hardest_wrong(torch.zeros(3, 3, dtype=torch.float64), onehot) * onehot).sum() == 0


def test_the_label_takes_the_first_pixels_and_leaves_the_others():
    images = torch.arange(24.0).reshape(2, 1, 3, 4)
    shown = with_label(images, torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]]))
    assert shown.shape == images.shape
    assert shown.flatten(1)[:, :5].tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert torch.equal(shown.flatten(1)[:, 5:], images.flatten(1)[:, 5:])
    assert images[0, 0, 0].tolist() == [0, 1, 2, 3]  # not in place


def test_every_label_is_shown_where_the_image_has_just_enough_pixels():
    options = {"threshold": 1.0, "first_block": 2}
    assert PLUGIN.feedback(NetworkShape((4, 4), 10, image=(1, 2, 5)), options, torch.Generator())
    with pytest.raises(UsageError, match="at least 10 pixels .one per class., found 9"):
        PLUGIN.feedback(NetworkShape((4, 4), 10, image=(1, 3, 3)), options, torch.Generator())


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
    def credits_and_states(self, feedback, inputs):
        found = super().credits_and_states(feedback, inputs)
        return dataclasses.replace(found, credits=[-credit for credit in found.credits])


@pytest.mark.parametrize(("method", "low", "high"), [(PLUGIN, 0.3, 1.0), (Opposite(), 0.0, 0.25)])
def test_it_learns_and_its_opposite_does_not(method, low, high):
    """Unlike a random B, a goodness has a sign."""
    sizes = {"d_hidden": 64, "num_blocks": 2}
    setup = tiny_task(method="forward_forward", architecture="mlp", architecture_options=sizes, epochs=12)
    setup = dataclasses.replace(setup, method=method)
    trainer = Trainer(setup)
    for _ in range(12):
        trainer.run_epoch()
    found = accuracy(setup.predictor, setup.splits.test_images, setup.splits.test_labels)
    assert low <= found <= high


@pytest.mark.long
@pytest.mark.parametrize("seed", [42, 123, 456])
def test_a_plain_perceptron_reaches_half_of_the_shifted_digits(seed):
    sizes = {"d_hidden": 256, "num_blocks": 2}
    setup = tiny_task(method="forward_forward", architecture="mlp", architecture_options=sizes, epochs=30, seed=seed)
    trainer = Trainer(setup)
    for _ in range(30):
        trainer.run_epoch()
    assert accuracy(setup.predictor, setup.splits.test_images, setup.splits.test_labels) >= 0.5
