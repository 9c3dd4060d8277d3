"""bp: the card's claims and the reference implementation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.errors import PluginError
from fa_registry.methods.base import CreditInputs, NoFeedback
from fa_registry.methods.bp import PLUGIN
from tests.helpers import numpy_checks
from tests.helpers.numpy_resmlp import Arrays, branch_back, forward, head_back, linear_back


def bp_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """∂(mean CE + λ Σ_l mean_i ||f_l||²)/∂w, the chain rule by hand."""
    states, branches, error = forward(w, x, y)
    grads: Arrays = {}
    g = head_back(w, grads, states[-1], error / len(x))
    for block in range(len(branches), 0, -1):
        g = g + branch_back(w, grads, block, states[block - 1], g + 2 * penalty * branches[block - 1] / len(x))
    linear_back(w, grads, "embed", x.reshape(len(x), -1), g)
    return grads


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_step_equals_the_reference(penalty):
    numpy_checks.check_step("bp", bp_reference, penalty, "rms")


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_optimiser_equals_the_reference(penalty):
    numpy_checks.check_optimiser("bp", bp_reference, penalty, "rms")


def test_credit_is_the_gradient_it_was_given():
    gradients = [torch.ones(2, 3), torch.zeros(2, 3)]
    inputs = CreditInputs(gradients, torch.zeros(2, 5), torch.zeros(2, 5), gradients[-1], gradients)
    assert PLUGIN.credits(NoFeedback(), inputs) == gradients


def test_credit_without_gradients_is_refused_by_name():
    inputs = CreditInputs([torch.ones(2, 3)], torch.zeros(2, 5), torch.zeros(2, 5), torch.ones(2, 3))
    with pytest.raises(PluginError, match="'bp' needs CreditInputs.gradients"):
        PLUGIN.credits(NoFeedback(), inputs)
