"""The energy that ep and predictive_coding relax, on resmlp in NumPy; and a stream whose states at rest have a closed form."""

from __future__ import annotations

import numpy as np
import torch

from fa_registry.methods.base import CreditInputs
from fa_registry.tasks import output_error, sample_losses
from tests.helpers.numpy_resmlp import Arrays, branch, branch_back, head_back, layer_norm, linear
from tests.helpers.tiny_tasks import scaling_network

Rows = list[np.ndarray]


def errors_at(w: Arrays, states: Rows, embedded: np.ndarray) -> Rows:
    """ε_0 = h_0 − embed(x), ε_l = h_l − h_{l-1} − f_l(h_{l-1})."""
    pairs = zip(states[:-1], states[1:], strict=True)
    gaps = [above - below - branch(w, block, below) for block, (below, above) in enumerate(pairs, start=1)]
    return [states[0] - embedded, *gaps]


def pulled(w: Arrays, states: Rows, errors: Rows) -> Rows:
    """ε_l J_l for l = 1..L, at `states`: what each site's error pulls the site below by."""
    return [
        error + branch_back(w, {}, block, states[block - 1], error) for block, error in enumerate(errors[1:], start=1)
    ]


def relaxed(w: Arrays, states: Rows, y: np.ndarray, nudge: float, steps: int, step_size: float) -> Rows:
    """h ← h − η ∂E/∂h from the forward pass `states`: ∂E/∂h_l = ε_l − J_{l+1}ᵀ ε_{l+1}, and ε_L + β g_L at L."""
    embedded, states = states[0], list(states)
    for _ in range(steps):
        errors = errors_at(w, states, embedded)
        z = linear(w, "out_head", layer_norm(w, "out_ln", states[-1]))
        p = np.exp(z - z.max(axis=1, keepdims=True))
        error = p / p.sum(axis=1, keepdims=True) - np.eye(z.shape[1])[y]
        pulls = [*pulled(w, states, errors), -nudge * head_back(w, {}, states[-1], error)]
        states = [h - step_size * (e - pull) for h, e, pull in zip(states, errors, pulls, strict=True)]
    return states


def scaling_inputs(factors: list[float], residual: bool = True) -> tuple[CreditInputs, list[torch.Tensor]]:
    """A stream whose every block multiplies by a number, under ½‖W h_L − y‖²; and its g_0..g_L."""
    head = torch.tensor([[1.0, 0.5], [-0.25, 1.0]], dtype=torch.float64)
    network = scaling_network(factors, head, residual)
    images = torch.tensor([[1.0, 2.0], [-0.5, 0.3], [0.2, -1.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    outputs, hidden = network(images, return_hidden=True)
    losses = sample_losses(outputs, labels)
    gradients = list(torch.autograd.grad(losses.sum(), hidden))
    network.requires_grad_(False)
    inputs = CreditInputs(
        [state.detach() for state in hidden],
        output_error(outputs, labels).detach(),
        labels,
        gradients[-1],
        labels=labels,
        losses=losses.detach(),
        network=network,
    )
    return inputs, gradients
