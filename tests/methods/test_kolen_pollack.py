"""kolen_pollack: the reference implementation, B's step equal to W's, the decay of their difference, and controls with fixed B."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.methods.base import NetworkShape
from fa_registry.methods.kolen_pollack import PLUGIN
from fa_registry.training.step import local_credit_step
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.numpy_backward_weights import layers, replaced_gradients, stored
from tests.helpers.numpy_resmlp import AdamW, Arrays
from tests.helpers.tiny_tasks import double, tiny_task


def kolen_pollack_reference(
    w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str
) -> Arrays:
    return replaced_gradients(w, stored(w, feedback), x, y, penalty, kind)


def feedback_gradients(w: Arrays, grads: Arrays) -> Arrays:
    """∂<B, ∇W>/∂B = ∇W."""
    return {"B_" + name.replace(".", "_"): grads[f"{name}.weight"] for name in layers(w)}


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("kolen_pollack", kolen_pollack_reference, penalty, credit_norm)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_weights_and_feedback_learn_as_the_reference(penalty):
    """Three steps of the trainer: each reference has its own AdamW, and B's is fed with ∇W."""
    task, images, labels = numpy_checks.reference_task("kolen_pollack", penalty, "rms")
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)
    recipe = task.spec.recipe
    trainer, for_w, for_b = Trainer(task), *(AdamW(recipe.learning_rate, recipe.weight_decay) for _ in range(2))
    for _ in range(3):
        trainer.step(images, labels)
        grads = kolen_pollack_reference(weights, feedback, images.numpy(), labels.numpy(), penalty, "rms")
        weights, feedback = for_w.step(weights, grads), for_b.step(feedback, feedback_gradients(weights, grads))
    for module, expected in ((task.network, weights), (task.feedback, feedback)):
        for name, found in numpy_checks.arrays(module).items():
            assert found == pytest.approx(expected[name], rel=1e-7, abs=1e-9), name


def gaps(trainer: Trainer) -> dict[str, torch.Tensor]:
    """W − B of every layer."""
    network, matrices = trainer.setup.network, trainer.setup.feedback.matrices()
    return {name: (network.get_submodule(name).weight - matrix).detach() for name, matrix in matrices.items()}


def test_the_difference_forgets_itself_under_the_recipe():
    """Under AdamW too, as its decay is decoupled and its step depends on past gradients alone, which B shares: over
    three epochs of a falling learning rate η, W − B is multiplied by Π (1 − η_t λ)."""
    trainer = Trainer(double(tiny_task(method="kolen_pollack", epochs=3, weight_decay=2.0)))
    before, factor = gaps(trainer), 1.0
    steps = -(-len(trainer.setup.splits.train_labels) // trainer.setup.spec.recipe.batch_size)
    for _ in range(3):
        trainer.run_epoch()
        factor *= (1 - 2.0 * trainer.optimizer.param_groups[0]["lr"]) ** steps
    assert factor < 0.96
    for name, gap in gaps(trainer).items():
        torch.testing.assert_close(gap, before[name] * factor, rtol=1e-9, atol=1e-12, msg=name)


def test_feedback_of_a_kept_block_stays_while_the_others_learn():
    trainer = Trainer(tiny_task(method="kolen_pollack", control="ladder_1"))
    before = {name: matrix.detach().clone() for name, matrix in trainer.setup.feedback.matrices().items()}
    for _ in range(2):
        trainer.step(trainer.setup.splits.test_images[:32], trainer.setup.splits.test_labels[:32])
    after = trainer.setup.feedback.matrices()
    changed = {name for name, matrix in after.items() if not torch.equal(matrix, before[name])}
    assert changed == {"blocks.1.w1", "blocks.1.w2", "out_head"}
    assert after["blocks.0.w1"].grad is None


def test_feedback_learns_and_the_loss_reaches_no_weight():
    task = tiny_task(method="kolen_pollack")
    assert PLUGIN.card.learned and all(matrix.requires_grad for matrix in task.feedback.parameters())
    images, labels = task.splits.test_images[:32], task.splits.test_labels[:32]
    local_credit_step(task.network, task.method, task.feedback, images, labels, 0.0, "rms")
    for name, matrix in task.feedback.matrices().items():
        weight = task.network.get_submodule(name).weight
        assert torch.equal(matrix.grad, weight.grad) and matrix.grad is not weight.grad
    found = task.method.backward_weights(task.feedback, task.network)
    assert not any(matrix.requires_grad for matrix in found.values())


def test_feedback_starts_with_variance_one_over_out():
    shape = NetworkShape((300, 200), 25, weights={"blocks.0.w": (200, 300)})
    matrix = PLUGIN.feedback(shape, {}, torch.Generator().manual_seed(0)).matrices()["blocks.0.w"]
    assert tuple(matrix.shape) == (200, 300)
    assert matrix.var().item() == pytest.approx(1 / 200, rel=0.03)  # 60,000 entries: its std is 0.6 %
