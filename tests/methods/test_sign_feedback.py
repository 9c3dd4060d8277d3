"""Signs of the weights carry the error back: usf by one magnitude, brsf by magnitudes drawn each step, frsf by those drawn once.

Each against its reference implementation; usf has a state without tensors, and all read the signs from the weights as they are now.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.methods.base import NetworkShape
from fa_registry.methods.brsf import PLUGIN as BRSF
from fa_registry.methods.frsf import PLUGIN as FRSF
from fa_registry.methods.usf import PLUGIN as USF
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.numpy_backward_weights import layers, replaced_gradients, stored
from tests.helpers.numpy_resmlp import AdamW, Arrays
from tests.helpers.tiny_tasks import tiny_task


def usf_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """B = sign(W)/√out."""
    weights = {name: w[f"{name}.weight"] for name in layers(w)}
    back = {name: np.sign(weight) / np.sqrt(weight.shape[0]) for name, weight in weights.items()}
    return replaced_gradients(w, back, x, y, penalty, kind)


def drawn_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """B = |M| ⊙ sign(W), of brsf and frsf."""
    back = {name: np.abs(m) * np.sign(w[f"{name}.weight"]) for name, m in stored(w, feedback).items()}
    return replaced_gradients(w, back, x, y, penalty, kind)


REFERENCES = {"usf": usf_reference, "brsf": drawn_reference, "frsf": drawn_reference}


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
@pytest.mark.parametrize("method", REFERENCES)
def test_step_equals_the_reference(method, penalty, credit_norm):
    numpy_checks.check_step(method, REFERENCES[method], penalty, credit_norm)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("method", ["usf", "frsf"])
def test_optimiser_equals_the_reference(method, penalty):
    """Over three steps the signs are those of the weights at each step, and frsf's M is the one drawn before the first."""
    numpy_checks.check_optimiser(method, REFERENCES[method], penalty, "rms")


@pytest.mark.parametrize("method", [BRSF, FRSF])
def test_magnitudes_have_second_moment_one_over_out(method):
    shape = NetworkShape((300, 200), 25, weights={"blocks.0.w": (200, 300)})
    magnitude = method.feedback(shape, {}, torch.Generator().manual_seed(0)).matrices()["blocks.0.w"]
    assert tuple(magnitude.shape) == (200, 300)
    assert magnitude.square().mean().item() == pytest.approx(1 / 200, rel=0.03)  # 60,000 entries: its std is 0.6 %


def test_the_feedback_state_is_the_names_of_the_layers():
    shape = NetworkShape((4, 6), 3, weights={"blocks.0.w": (6, 4), "out_head": (3, 6)})
    state = USF.feedback(shape, {}, torch.Generator())
    assert state.layers == ("blocks.0.w", "out_head")
    assert not state.state_dict()


def test_every_layer_carries_an_error_back_by_one_magnitude_and_the_signs_of_now():
    task = tiny_task(method="usf")
    layer = task.network.blocks[0].w1
    with torch.no_grad():
        layer.weight[0, 0], layer.weight[0, 1] = 0.0, -7.0
    found = task.method.backward_weights(task.feedback, task.network)
    assert list(found) == ["blocks.0.w1", "blocks.0.w2", "blocks.1.w1", "blocks.1.w2", "out_head"]
    magnitude = 16**-0.5  # out features of a block's layers
    assert found["blocks.0.w1"][0, :2].tolist() == [0.0, pytest.approx(-magnitude)]
    assert found["blocks.0.w2"].abs().unique().tolist() == [pytest.approx(magnitude)]
    assert found["out_head"].abs().unique().tolist() == [pytest.approx(10**-0.5)]
    with torch.no_grad():
        layer.weight.neg_()
    turned = task.method.backward_weights(task.feedback, task.network)
    assert torch.equal(turned["blocks.0.w1"], -found["blocks.0.w1"])
    assert not any(matrix.requires_grad for matrix in turned.values())


def test_every_step_uses_the_magnitudes_drawn_after_the_last():
    """Three trainer steps against the reference, which draws the same normals in the order of the layers, scaled by 1/√out."""
    task, images, labels = numpy_checks.reference_task("brsf", 0.05, "rms")
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)
    trainer, optimiser = Trainer(task), AdamW(task.spec.recipe.learning_rate, task.spec.recipe.weight_decay)
    draw = torch.Generator()
    draw.set_state(trainer.generators["method"].get_state())
    for _ in range(3):
        trainer.step(images, labels)
        weights = optimiser.step(
            weights, drawn_reference(weights, feedback, images.numpy(), labels.numpy(), 0.05, "rms")
        )
        for name in layers(weights):
            size = weights[f"{name}.weight"].shape
            normal = torch.empty(size, dtype=torch.float64).normal_(generator=draw).numpy()
            feedback["B_" + name.replace(".", "_")] = normal / np.sqrt(size[0])
    for name, found in numpy_checks.arrays(task.feedback).items():
        assert found == pytest.approx(feedback[name], rel=1e-12), name
    for name, found in numpy_checks.arrays(task.network).items():
        assert found == pytest.approx(weights[name], rel=1e-7, abs=1e-9), name


def test_redrawing_keeps_the_distribution_and_comes_from_the_generator_it_is_given():
    images, labels = (part[:32] for part in (tiny_task().splits.test_images, tiny_task().splits.test_labels))
    options = {"d_hidden": 200, "num_blocks": 1}
    first, second = (Trainer(tiny_task(method="brsf", architecture_options=options)) for _ in range(2))
    start = first.setup.feedback.B_blocks_0_w1.clone()
    torch.manual_seed(0)
    first.step(images, labels)
    torch.manual_seed(1)
    second.step(images, labels)
    redrawn = first.setup.feedback.B_blocks_0_w1
    assert torch.equal(redrawn, second.setup.feedback.B_blocks_0_w1)
    assert redrawn.square().mean().item() == pytest.approx(1 / 200, rel=0.04)  # 40,000 entries: its std is 0.7 %
    assert abs((redrawn * start).mean().item()) * 200 < 4 / 200  # independent of the one before: its std is 1/√40,000


def test_only_signs_change_when_weights_do():
    task = tiny_task(method="frsf", architecture_options={"d_hidden": 16, "num_blocks": 2, "w2_std": 0.0})
    assert not task.method.backward_weights(task.feedback, task.network)["blocks.0.w2"].any()  # sign(0) = 0
    before = {name: matrix.clone() for name, matrix in task.feedback.matrices().items()}
    trainer = Trainer(task)
    for _ in range(3):
        trainer.step(task.splits.test_images[:32], task.splits.test_labels[:32])
    for name, matrix in task.method.backward_weights(task.feedback, task.network).items():
        assert torch.equal(task.feedback.matrices()[name], before[name])
        assert torch.equal(matrix.abs(), before[name].abs())
        assert torch.equal(matrix.sign(), task.network.get_submodule(name).weight.sign())
