"""Comparing one method with its NumPy reference: gradients of a step, then three AdamW steps of the real trainer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fa_registry.records import Scalar
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.step import backprop_step, local_credit_step
from fa_registry.training.trainer import Trainer
from tests.helpers.numpy_resmlp import AdamW, Arrays
from tests.helpers.tiny_tasks import double, tiny_task

SAMPLES = 23  # no divisor in common with any width here
OPTIONS = {"d_hidden": 16, "num_blocks": 3, "w2_std": 0.5}
Reference = Callable[
    [Arrays, Arrays, np.ndarray, np.ndarray, float, str], Arrays
]  # weights, feedback, x, y, penalty, norm


def arrays(module: torch.nn.Module) -> Arrays:
    return {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}


def reference_task(
    method: str, penalty: float, credit_norm: str, **options: Scalar
) -> tuple[RunSetup, torch.Tensor, torch.Tensor]:
    """A float64 task with weights that are no special case: every bias and LayerNorm is perturbed. options: the method's."""
    spec = {"method": method, "method_options": options, "architecture_options": OPTIONS}
    task = double(tiny_task(penalty=penalty, credit_norm=credit_norm, **spec))
    stream = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in task.network.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=stream, dtype=torch.float64) * 0.1)
    return task, task.splits.test_images[:SAMPLES], task.splits.test_labels[:SAMPLES]


def check_step(method: str, reference: Reference, penalty: float, credit_norm: str, **options: Scalar) -> None:
    """Every parameter's gradient after one step equals the reference's to 1e-9."""
    task, images, labels = reference_task(method, penalty, credit_norm, **options)
    expected = reference(
        arrays(task.network), arrays(task.feedback), images.numpy(), labels.numpy(), penalty, credit_norm
    )
    if task.method.end_to_end:
        backprop_step(task.network, images, labels, penalty)
    else:
        local_credit_step(task.network, task.method, task.feedback, images, labels, penalty, credit_norm)
    found = {name: parameter.grad.numpy() for name, parameter in task.network.named_parameters()}
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        off = np.abs(gradient - expected[name]).max() / np.abs(expected[name]).max()
        assert gradient == pytest.approx(expected[name], rel=1e-9, abs=1e-9 * np.abs(expected[name]).max()), (
            f"{name}: off by {off:.1e} of its largest entry; some 1e-8 is a feedback that the reference did not round to float32"
        )


def check_optimiser(method: str, reference: Reference, penalty: float, credit_norm: str) -> None:
    """Weights after three steps of the trainer equal the reference's under AdamW written out."""
    task, images, labels = reference_task(method, penalty, credit_norm)
    weights, feedback = arrays(task.network), arrays(task.feedback)
    trainer, optimiser = Trainer(task), AdamW(task.spec.recipe.learning_rate, task.spec.recipe.weight_decay)
    for _ in range(3):
        trainer.step(images, labels)
        weights = optimiser.step(
            weights, reference(weights, feedback, images.numpy(), labels.numpy(), penalty, credit_norm)
        )
    for name, found in arrays(task.network).items():
        assert found == pytest.approx(weights[name], rel=1e-7, abs=1e-9), name
