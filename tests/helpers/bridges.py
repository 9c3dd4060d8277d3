"""What the tests of the two bridges share: what one step passes to a method, and a loss's slope by differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from fa_registry.methods.base import CreditInputs
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.step import local_credit_step
from tests.helpers.numpy_resmlp import Arrays


def seen(task: RunSetup, images: torch.Tensor, labels: torch.Tensor, seed: int = 0) -> CreditInputs:
    """The inputs that a step passed to the method, with a fresh generator; every gradient it left behind is cleared."""
    inputs = local_credit_step(task.network, task.method, task.feedback, images, labels, 0.0, "none").seen
    for module in (task.network, task.feedback):
        module.zero_grad(set_to_none=True)
    return fresh(inputs, seed)


def fresh(inputs: CreditInputs, seed: int = 0) -> CreditInputs:
    """The same inputs with a generator that starts again."""
    return CreditInputs(**{**vars(inputs), "generator": torch.Generator().manual_seed(seed)})


def slopes(
    loss: Callable[[Arrays], float], arrays: Arrays, learned: nn.Module, step: float = 1e-5
) -> tuple[float, float]:
    """The derivative of a NumPy loss along a random direction of the parameters: from their .grad, and by central differences."""
    draw = np.random.default_rng(5)
    gradients = {name: one.grad.numpy() for name, one in learned.named_parameters() if one.requires_grad}
    direction = {name: draw.standard_normal(gradient.shape) for name, gradient in gradients.items()}
    ahead, behind = (
        loss({name: value + sign * step * direction.get(name, 0.0) for name, value in arrays.items()})
        for sign in (1, -1)
    )
    found = sum(float((gradient * direction[name]).sum()) for name, gradient in gradients.items())
    return found, (ahead - behind) / (2 * step)
