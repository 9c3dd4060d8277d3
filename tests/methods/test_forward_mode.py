"""fdfa and grape: the forward-mode product on every architecture, and the update of B against NumPy from the equations."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fa_registry.architectures import CATALOG as ARCHITECTURES
from fa_registry.conformance.small_networks import Setting, variants
from fa_registry.errors import InvalidFields
from fa_registry.methods._forward_mode import SUPPORTED, _noise, jacobian_estimates, output_slopes
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.fdfa import PLUGIN as FDFA
from fa_registry.methods.grape import PLUGIN as GRAPE
from fa_registry.seeding import generator
from fa_registry.training.step import backprop_step, local_credit_step
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.numpy_resmlp import Arrays, forward, gelu_slope, layer_norm, linear, local_gradients, standardise
from tests.helpers.tiny_tasks import tiny_spec, tiny_task

SEED = 5


def reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_l = e B_lᵀ; c_0 uses B_1."""

    def credit(states, error, top_gradient):
        return [error @ feedback[f"B_{max(site, 1):02d}"].T for site in range(len(states))]

    return local_gradients(w, x, y, credit, penalty, kind)


def layer_norm_slope(w: Arrays, name: str, h: np.ndarray, dh: np.ndarray) -> np.ndarray:
    """Directional derivative of LayerNorm at h along dh."""
    unit, std = standardise(h)
    centred = dh - dh.mean(axis=1, keepdims=True)
    return (centred - unit * (unit * dh).mean(axis=1, keepdims=True)) / std * w[f"{name}.weight"]


def branch_slope(w: Arrays, block: int, h: np.ndarray, dh: np.ndarray) -> np.ndarray:
    """Directional derivative of the branch w2 GELU(w1 LN(h)) of block 1..L."""
    name = f"blocks.{block - 1}"
    u = linear(w, f"{name}.w1", layer_norm(w, f"{name}.ln", h))
    du = layer_norm_slope(w, f"{name}.ln", h, dh) @ w[f"{name}.w1.weight"].T
    return (gelu_slope(u) * du) @ w[f"{name}.w2.weight"].T


def estimates(w: Arrays, x: np.ndarray, y: np.ndarray, noises: list[np.ndarray]) -> list[np.ndarray]:
    """p_lᵀ d/N for the sites 1..L, with d = Σ_l J_l p_l: the tangent of h_l is p_l plus what arrives from below."""
    states, branches, _ = forward(w, x, y)
    tangent = noises[0]
    for block in range(2, len(branches) + 1):
        tangent = tangent + branch_slope(w, block, states[block - 1], tangent) + noises[block - 1]
    slopes = layer_norm_slope(w, "out_ln", states[-1], tangent) @ w["out_head.weight"].T
    return [noise.T @ slopes / len(x) for noise in noises]


def fdfa_update(matrix: np.ndarray, estimate: np.ndarray, rate: float) -> np.ndarray:
    return (1 - rate) * matrix + rate * estimate


def grape_update(matrix: np.ndarray, estimate: np.ndarray, rate: float) -> np.ndarray:
    """One gradient step on 1 − mean_k cos(b_k, j_k) with the full derivative of a cosine, then columns of norm 1."""
    columns = []
    for b, j in zip(matrix.T, estimate.T, strict=True):
        norms = np.linalg.norm(b) * np.linalg.norm(j)
        slope = j / norms - (b @ j) * b / (norms * (b @ b))
        new = b + rate / matrix.shape[1] * slope
        columns.append(new / np.linalg.norm(new))
    return np.stack(columns, axis=1)


UPDATES = {"fdfa": fdfa_update, "grape": grape_update}
METHODS = {"fdfa": FDFA, "grape": GRAPE}


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
@pytest.mark.parametrize("method", METHODS)
def test_step_equals_the_reference(method, penalty, credit_norm):
    numpy_checks.check_step(method, reference, penalty, credit_norm)


@pytest.mark.parametrize("method", METHODS)
def test_three_updates_of_the_feedback_equal_the_reference(method):
    task, images, labels = numpy_checks.reference_task(method, 0.0, "rms")
    draw, twin = (torch.Generator().manual_seed(SEED) for _ in range(2))
    seen = local_credit_step(task.network, task.method, task.feedback, images, labels, 0.0, "rms", draw).seen
    rate, weights = METHODS[method].card.options["feedback_rate"].default, numpy_checks.arrays(task.network)
    expected = numpy_checks.arrays(task.feedback)
    for _ in range(3):
        with torch.no_grad():
            task.method.update_feedback(task.feedback, seen)
        noises = [torch.randn(h.shape, generator=twin, dtype=h.dtype).numpy() for h in seen.hidden[1:]]
        for site, found in enumerate(estimates(weights, images.numpy(), labels.numpy(), noises), start=1):
            expected[f"B_{site:02d}"] = UPDATES[method](expected[f"B_{site:02d}"], found, rate)
    for name, found in numpy_checks.arrays(task.feedback).items():
        assert found == pytest.approx(expected[name], rel=1e-10, abs=1e-12), name


@pytest.mark.parametrize("name", SUPPORTED)
def test_the_forward_product_is_the_adjoint_of_the_backward_pass(name):
    """Σ_i <d_i, e_i> = Σ_l Σ_i <p_l, g_l>: it holds only for the right sites, positions and sign."""
    architecture = ARCHITECTURES.get(name)
    case = Setting(FDFA, architecture, next(variants(architecture)), 0).case()
    inputs = dataclasses.replace(case.inputs(), generator=generator(0, "noise"))
    noises = [_noise(state, inputs) for state in inputs.hidden[1:]]
    with torch.no_grad():
        slopes = output_slopes(inputs, noises)
    assert slopes.shape == inputs.error.shape
    backward = sum((noise * g).sum() for noise, g in zip(noises, inputs.gradients[1:], strict=True))
    torch.testing.assert_close((slopes * inputs.error).sum(), backward, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["vit_mini", "causal_transformer"])
def test_an_estimate_at_the_last_site_of_tokens_is_near_the_jacobian(name):
    """c_L = e B_Lᵀ has a cosine near that of the average Jacobian, which is exact here but for the LayerNorm of the readout."""
    architecture = ARCHITECTURES.get(name)
    case = Setting(FDFA, architecture, next(variants(architecture)), 0).case()
    inputs = dataclasses.replace(case.inputs(), generator=generator(0, "noise"))
    with torch.no_grad():
        mean = sum(jacobian_estimates(inputs)[-1] for _ in range(200)) / 200  # (hidden, classes)
    credit, gradient = inputs.error @ mean.T, inputs.gradients[-1]
    gradient = gradient if name == "causal_transformer" else gradient.sum(dim=1)
    assert torch.nn.functional.cosine_similarity(credit, gradient, dim=-1, eps=1e-30).mean() > 0.8


@pytest.mark.parametrize("method", METHODS)
def test_noise_comes_from_the_given_generator_and_the_embedding_matrix_stays(method):
    task = tiny_task(method=method, architecture="mlp", architecture_options={"d_hidden": 16, "num_blocks": 2})
    before, state = {name: value.clone() for name, value in task.feedback.state_dict().items()}, torch.get_rng_state()
    Trainer(task).step(task.splits.test_images[:32], task.splits.test_labels[:32])
    assert torch.equal(torch.get_rng_state(), state)
    changed = {name for name, value in task.feedback.state_dict().items() if not torch.equal(value, before[name])}
    assert before.keys() == {"B_00", "B_01", "B_02"} and changed == {"B_01", "B_02"}


def test_the_first_matrices():
    shape, options = NetworkShape((300, 300, 200), 25), {"feedback_rate": 0.1}
    small = FDFA.feedback(shape, options, torch.Generator().manual_seed(0))
    assert small.B_01.std().item() == pytest.approx(0.01 / 5, rel=0.05)
    unit = GRAPE.feedback(shape, options, torch.Generator().manual_seed(0))
    torch.testing.assert_close(unit.B_02.norm(dim=0), torch.ones(25))


@pytest.mark.parametrize("credit_norm", ["none", "rms"])
@pytest.mark.parametrize("architecture", ["resmlp", "mlp"])
def test_an_anchor_step_has_the_exact_gradient_at_every_site(architecture, credit_norm):
    options = {"d_hidden": 16, "num_blocks": 3}
    task = tiny_task(method="grape", architecture=architecture, architecture_options=options, credit_norm=credit_norm)
    network, images, labels = (
        task.network.double(),
        *(part[:32] for part in (task.splits.test_images, task.splits.test_labels)),
    )
    images = images.double()
    task.feedback.double()
    local_credit_step(network, task.method, task.feedback, images, labels, 0.0, credit_norm, anchor=True)
    found = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    network.zero_grad(set_to_none=True)
    if credit_norm == "none":
        backprop_step(network, images, labels, 0.0)
        expected = {name: parameter.grad for name, parameter in network.named_parameters()}
    else:
        expected = normalised_bp(network, images, labels)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-13, msg=name)


def normalised_bp(network, images, labels) -> dict[str, torch.Tensor]:
    """Gradients of Σ_l J_l + mean CE with c_l = g_l, each row divided by its rms + 1e-6, by autograd."""
    logits, hidden = network(images.clone().requires_grad_(), return_hidden=True)
    exact = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"), hidden)
    units = [g / (g.square().mean(dim=1, keepdim=True).sqrt() + 1e-6) for g in exact]
    outputs = [network.embed(images), *(block(h.detach()) for block, h in zip(network.blocks, hidden, strict=False))]
    local = sum((output * unit).sum() / len(images) for output, unit in zip(outputs, units, strict=True))
    loss = local + torch.nn.functional.cross_entropy(network.readout(hidden[-1].detach()), labels)
    names, parameters = zip(*network.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


class Watched(Trainer):
    """A trainer that notes for every step whether it is an anchor step."""

    def _step(self, images, labels, anchor):
        self.__dict__.setdefault("anchors", []).append(anchor)
        return super()._step(images, labels, anchor)


@pytest.mark.parametrize(("every", "epochs_with_one"), [("never", []), ("1", [1, 2, 3, 4]), (2, [2, 4]), ("7", [])])
def test_anchor_steps_are_the_first_batches_of_every_such_epoch(every, epochs_with_one):
    trainer = Watched(tiny_task(method="grape", method_options={"anchor_every": every}, epochs=5, batch_size=128))
    for _ in range(5):
        trainer.run_epoch()
    per_epoch = len(trainer.anchors) // 5
    assert [step for step, anchor in enumerate(trainer.anchors) if anchor] == [per_epoch * e for e in epochs_with_one]


@pytest.mark.parametrize(("batch_size", "every"), [(1437, 1), (160, 1), (1437, 9)])
def test_a_method_that_is_mostly_backpropagation_is_refused(batch_size, every):
    """1,437 training samples: one batch, nine batches, and one batch in each of nine epochs."""
    with pytest.raises(InvalidFields):
        tiny_task(method="grape", method_options={"anchor_every": every}, batch_size=batch_size)
    assert tiny_task(method="grape", method_options={"anchor_every": 10 * every}, batch_size=batch_size)


def test_a_card_has_to_describe_anchor_steps(monkeypatch):
    hidden = dataclasses.replace(GRAPE.card, anchor_steps="")
    monkeypatch.setattr(GRAPE, "card", hidden)
    with pytest.raises(InvalidFields, match="anchor_steps"):
        tiny_task(method="grape")


def test_without_an_anchor_step_no_specification_mentions_one():
    assert tiny_spec(method="grape").method_options["anchor_every"] == "never"
    assert tiny_spec(method="grape", method_options={"anchor_every": 3}).method_options["anchor_every"] == "3"
