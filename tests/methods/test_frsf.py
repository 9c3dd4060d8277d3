"""frsf: the reference twin, the distribution of M, magnitudes that stay and signs that follow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.errors import InvalidFields
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.frsf import PLUGIN
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer
from tests.helpers import twins
from tests.helpers.numpy_resmlp import Arrays
from tests.helpers.replaced_twin import replaced_gradients, stored
from tests.helpers.small import RAW, tiny_task


def frsf_twin(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """B = |M| ⊙ sign(W)."""
    back = {name: np.abs(m) * np.sign(w[f"{name}.weight"]) for name, m in stored(w, feedback).items()}
    return replaced_gradients(w, back, x, y, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_twin(penalty, credit_norm):
    twins.check_step("frsf", frsf_twin, penalty, credit_norm)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_optimiser_equals_the_twin(penalty):
    """Over three steps M is the one drawn before the first and the signs are those of the weights at each step."""
    twins.check_optimiser("frsf", frsf_twin, penalty, "rms")


def test_magnitudes_have_second_moment_one_over_out():
    shape = NetworkShape((300, 200), 25, weights={"blocks.0.w": (200, 300)})
    magnitude = PLUGIN.feedback(shape, {}, torch.Generator().manual_seed(0)).matrices()["blocks.0.w"]
    assert tuple(magnitude.shape) == (200, 300)
    assert magnitude.square().mean().item() == pytest.approx(1 / 200, rel=0.03)  # 60,000 entries: its std is 0.6 %


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


def test_an_option_it_does_not_have_is_refused():
    with pytest.raises(InvalidFields, match="method_options: unknown option of frsf 'scale'"):
        parse_spec({**RAW, "method": "frsf", "method_options": {"scale": 1}})
