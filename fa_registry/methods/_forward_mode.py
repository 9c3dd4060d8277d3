"""Estimates of the Jacobians ∂z/∂h_l by one forward-mode product.

All states are perturbed at the same time by independent noise p_l ~ N(0, 1). Forward-mode differentiation computes the directional
derivative d = Σ_k J_k p_k of the outputs z, with J_k = ∂z/∂h_k, in about the time of a second forward pass. Because the noises of
different sites and samples are independent, E[d p_lᵀ] = J_l. Source: Bacho & Chu 2024, section 3.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fa_registry.methods._nets import noise_like
from fa_registry.methods._relaxation import quiet
from fa_registry.methods.base import CreditInputs
from fa_registry.token_axes import features

SUPPORTED = ("resmlp", "mlp", "linear_lq", "student_net", "vit_mini", "small_cnn", "causal_transformer")
UNSUPPORTED = (
    "the directional derivative needs a second forward pass of the blocks, in which every sample is perturbed separately; a "
    "BatchNorm couples the samples and would count the batch twice in its running statistics"
)


def jacobian_estimates(inputs: CreditInputs) -> list[Tensor]:
    """Estimate (∂z/∂h_l)ᵀ, averaged over the batch, as mean_i p_l dᵀ for the sites l = 1..L.

    Without targets at every position, one vector p_l per sample shifts all positions of a state. The estimate is then the Jacobian
    with respect to the average over positions. With targets at every position, every position has its own p_l, and the estimate is
    the Jacobian of a position's outputs with respect to the state at the same position, averaged over the positions.

    Returns:
        Matrices (D_l, C) for the sites 1..L.
    """
    noises = [_noise(state, inputs) for state in inputs.hidden[1:]]
    slopes = output_slopes(inputs, noises).flatten(0, -2)  # (batch, classes), or (batch · positions, classes)
    rows = [noise.flatten(0, -2) if inputs.by_position else noise.flatten(1) for noise in noises]
    return [row.T @ slopes / len(row) for row in rows]


def output_slopes(inputs: CreditInputs, shifts: Sequence[Tensor]) -> Tensor:
    """Compute the directional derivative of the outputs z along shifts of the states h_1..h_L.

    Args:
        inputs: states and network of the batch.
        shifts: p_1..p_L, each of a shape that broadcasts to the state.

    Returns:
        The derivatives Σ_l J_l p_l, in the shape of z.
    """
    network, first = inputs.network, inputs.hidden[1]

    def outputs(*moved: Tensor) -> Tensor:
        state = first + moved[0]
        for block, shift in zip(list(network.blocks)[1:], moved[1:], strict=True):
            state = network.step(state, block(state)) + shift
        return network.readout(state)

    _load_derivatives()
    zeros = tuple(torch.zeros_like(shift) for shift in shifts)
    with quiet(network), sdpa_kernel(SDPBackend.MATH):  # torch's fused attention has no forward-mode derivative
        return torch.func.jvp(outputs, zeros, tuple(shifts))[1]


@functools.cache
def _load_derivatives() -> None:
    """Import torch's forward-mode derivatives without torch's warning about its code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch._decomp import decompositions_for_jvp  # noqa: F401


def _noise(state: Tensor, inputs: CreditInputs) -> Tensor:
    """Draw N(0, 1) noise for a state.

    The shape is (N, D), (N, 1, D) or (N, D, 1, 1), or (N, T, D) if every position has a target.
    """
    if inputs.by_position or state.dim() == 2:
        return noise_like(state, inputs.generator)
    rows = noise_like(state.new_empty(len(state), features(state)), inputs.generator)
    return rows[:, None] if state.dim() == 3 else rows[:, :, None, None]
