"""pepita: the reference implementation, the published distribution of F, and what a modulated input does to a linear network."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fa_registry.architectures.mlp import PLUGIN as MLP
from fa_registry.architectures.resmlp import PLUGIN as RESMLP
from fa_registry.conformance.small_networks import Setting
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.pepita import PLUGIN
from fa_registry.training.run_setup import network_shape
from fa_registry.training.step import local_credit_step
from tests.helpers import numpy_checks
from tests.helpers.numpy_resmlp import Arrays, forward, local_gradients
from tests.helpers.tiny_tasks import trained


def pepita_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_l = h_l(x) − h_l(x + F e)."""

    def credit(states, error, top_gradient):
        modulated, _, _ = forward(w, x.reshape(len(x), -1) + error @ feedback["F"].T, y)
        return [clean - other for clean, other in zip(states, modulated, strict=True)]

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("pepita", pepita_reference, penalty, credit_norm)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_optimiser_equals_the_reference(penalty):
    numpy_checks.check_optimiser("pepita", pepita_reference, penalty, "rms")


@pytest.mark.parametrize("scale", [0.05, 2.0])
def test_f_is_uniform_with_the_published_bound(scale):
    shape = NetworkShape((16, 16), 25, image=(3, 32, 32))
    (drawn,) = PLUGIN.feedback(shape, {"scale": scale}, torch.Generator().manual_seed(0)).state_dict().values()
    bound = scale * (6 / 3072) ** 0.5
    assert drawn.shape == (3072, 25)
    assert drawn.abs().max().item() == pytest.approx(bound, rel=1e-3) and drawn.abs().max() <= bound
    assert drawn.std().item() == pytest.approx(bound / 3**0.5, rel=0.01)
    assert abs(drawn.mean().item()) < 4 * bound / 3**0.5 / drawn.numel() ** 0.5


def test_f_is_laid_over_the_image_pixel_by_pixel():
    """mlp's site 0 is the image itself, so its credit is −F e and nothing else."""
    case = Setting(PLUGIN, MLP, {"d_hidden": 16, "num_blocks": 2}, 0).case()
    inputs = case.inputs()
    expected = -(inputs.error.numpy() @ case.feedback.F.numpy().T)
    assert case.credits(inputs)[0].numpy() == pytest.approx(
        expected, rel=1e-9, abs=1e-12 * np.abs(expected).max() + 1e-15
    )


def test_the_credit_leads_to_what_the_modulated_input_shows():
    """h_l − c_l is the state of the modulated pass: descent along −c_l moves there."""
    case = Setting(PLUGIN, RESMLP, {"d_hidden": 16, "num_blocks": 3, "w2_std": 0.5}, 0).case()
    inputs = case.inputs()
    modulated = inputs.images + (inputs.error @ case.feedback.F.T).reshape(inputs.images.shape)
    with torch.no_grad():
        states = case.network.hidden(modulated)
    for credit, state, other in zip(case.credits(inputs), inputs.hidden, states, strict=True):
        assert torch.allclose(state - credit, other, rtol=0, atol=1e-12)
        assert not torch.allclose(state, other, rtol=0, atol=1e-3)


def test_without_an_error_there_is_no_credit():
    case = Setting(PLUGIN, RESMLP, {"d_hidden": 16, "num_blocks": 3, "w2_std": 0.5}, 0).case()
    inputs = dataclasses.replace(case.inputs(), error=torch.zeros_like(case.inputs().error))
    assert all(credit.abs().max() == 0 for credit in case.credits(inputs))


def test_a_step_leaves_no_gradient_on_the_credits_pass():
    """The second pass is no part of the objective: the embedding learns from c_0 at the clean image alone."""
    task, images, labels = numpy_checks.reference_task("pepita", 0.0, "none")
    sums = local_credit_step(task.network, task.method, task.feedback, images, labels, 0.0, "none")
    with torch.no_grad():
        zero = task.method.credits(task.feedback, sums.seen)[0]
    expected = zero.T @ images.flatten(1) / len(images)
    assert torch.allclose(task.network.embed.weight.grad, expected, rtol=1e-9, atol=1e-15)


def test_it_trains_the_network_it_was_published_on():
    recipe = {"architecture": "mlp", "epochs": 10, "learning_rate": 0.003, "architecture_options": {"d_hidden": 64}}
    runs = {"pepita": {"credit_norm": "none"}, "bp": {"control": "frozen"}}
    losses = {}
    for method, more in runs.items():
        _, recorder, _ = trained(method=method, schedule="constant", **recipe, **more)
        losses[method] = recorder.rows[-1].measurements.scalars["loss_train"].value
    assert losses["pepita"] < 1.8 and losses["bp"] > 2.1  # ln 10 = 2.3: the head alone would not have done it


def test_noise_in_the_second_pass_is_refused_by_its_card():
    assert not PLUGIN.card.supports("linear_lq")
    assert "process noise" in PLUGIN.card.unsupported


def test_the_image_shape_is_the_networks_input():
    case = Setting(PLUGIN, RESMLP, {"d_hidden": 16, "num_blocks": 1}, 0).case()
    assert network_shape(case.network, case.images[:1], 5).image == (3, 8, 8)
    assert case.feedback.F.shape == (192, 5)
