"""weight_mirror: the reference implementations of a step and of mirroring, the noise it settles at, and its options."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.methods.base import NetworkShape
from fa_registry.methods.weight_mirror import PLUGIN
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.numpy_backward_weights import layers, replaced_gradients, stored
from tests.helpers.numpy_resmlp import AdamW, Arrays
from tests.helpers.tiny_tasks import tiny_task

DEFAULTS = {"mirror_rate": 0.01, "mirror_batch": 128}


def weight_mirror_reference(
    w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str
) -> Arrays:
    return replaced_gradients(w, stored(w, feedback), x, y, penalty, kind)


def mirrored(w: Arrays, feedback: Arrays, noise: Arrays) -> Arrays:
    """B ← (1 − d) B + d yᵀξ/n with y = ξ Wᵀ."""
    new = {}
    for name in layers(w):
        key, xi = "B_" + name.replace(".", "_"), noise[name]
        y = xi @ w[f"{name}.weight"].T
        new[key] = 0.99 * feedback[key] + 0.01 * (y.T @ xi) / 128
    return new


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("weight_mirror", weight_mirror_reference, penalty, credit_norm)


def test_weights_and_mirrors_follow_the_reference():
    """Three trainer steps; the mirror sees the weights after the optimiser has moved them."""
    task, images, labels = numpy_checks.reference_task("weight_mirror", 0.05, "rms")
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)
    trainer, optimiser = Trainer(task), AdamW(task.spec.recipe.learning_rate, task.spec.recipe.weight_decay)
    draw = torch.Generator()
    draw.set_state(trainer.generators["method"].get_state())
    for _ in range(3):
        trainer.step(images, labels)
        grads = weight_mirror_reference(weights, feedback, images.numpy(), labels.numpy(), 0.05, "rms")
        weights = optimiser.step(weights, grads)
        sizes = {name: (128, weights[f"{name}.weight"].shape[1]) for name in layers(weights)}
        drawn = {name: torch.empty(size, dtype=torch.float64).normal_(generator=draw) for name, size in sizes.items()}
        feedback = mirrored(weights, feedback, {name: noise.numpy() for name, noise in drawn.items()})
    for module, expected in ((task.network, weights), (task.feedback, feedback)):
        for name, found in numpy_checks.arrays(module).items():
            assert found == pytest.approx(expected[name], rel=1e-7, abs=1e-9), name


@pytest.mark.parametrize(("rate", "samples"), [(0.1, 8), (0.02, 64), (1.0, 16)])
def test_mirrors_settle_at_the_predicted_distance(rate, samples):
    """‖B − W‖²/‖W‖² → d/(2 − d)·(in + 1)/n, here pooled over 40 independent mirrors of a fixed (20, 30) matrix."""
    stream = torch.Generator().manual_seed(6)
    layer = torch.nn.Linear(30, 20, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.normal_(generator=stream)
    network = torch.nn.ModuleDict({f"w{index}": layer for index in range(40)})
    shape = NetworkShape((30, 20), 20, weights={f"w{index}": (20, 30) for index in range(40)})
    options = {"mirror_rate": rate, "mirror_batch": samples}
    feedback = PLUGIN.feedback(shape, options, stream).double()
    inputs = type("Inputs", (), {"network": network, "generator": stream})()
    with torch.no_grad():
        for _ in range(int(8 / rate)):
            PLUGIN.update_feedback(feedback, inputs)
    squares = [(matrix - layer.weight).square().sum().item() for matrix in feedback.matrices().values()]
    found = np.mean(squares) / layer.weight.square().sum().item()
    assert found == pytest.approx(rate / (2 - rate) * 31 / samples, rel=0.1)
    mean = torch.stack(list(feedback.matrices().values())).mean(dim=0)
    assert (mean - layer.weight).square().sum().item() < 3 * np.mean(squares) / 40  # unbiased: the mean's error is 1/40


def test_feedback_starts_with_variance_one_over_out():
    shape = NetworkShape((300, 200), 25, weights={"blocks.0.w": (200, 300)})
    feedback = PLUGIN.feedback(shape, DEFAULTS, torch.Generator().manual_seed(0))
    assert feedback.B_blocks_0_w.var().item() == pytest.approx(1 / 200, rel=0.03)  # 60,000 entries: its std is 0.6 %
    assert not list(feedback.parameters()) and PLUGIN.card.learned


def test_the_options_reach_the_mirror():
    task = tiny_task(method="weight_mirror", method_options={"mirror_rate": "0.25", "mirror_batch": "4"})
    assert (task.feedback.rate, task.feedback.samples) == (0.25, 4)
