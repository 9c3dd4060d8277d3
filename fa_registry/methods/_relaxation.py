"""Relaxation of the states h_0..h_L on a predictive-coding energy.

The weights are fixed. The states move by gradient descent on the energy

    E = ½‖ε_0‖² + ½ Σ_l ‖ε_l‖² + β Σ_i ℓ_i(readout(h_L)),   ε_0 = h_0 − embed(x),   ε_l = h_l − F_l(h_{l-1})

F_l is the map of block l. In the forward pass, every ε_l is 0, so the forward states h_l^0 are the minimum of the energy at β =
0. The code stores the shifts δ_l = h_l − h_l^0 and computes ε_l = δ_l − (F_l(h_{l-1}^0 + δ_{l-1}) − F_l(h_{l-1}^0)). In a trained
  network, the shifts are so small that float32 rounding would remove them from the sum h_l^0 + δ_l.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from fa_registry.architectures.base import Noisy
from fa_registry.methods.base import CreditInputs, NetworkView

SUPPORTED = ("resmlp", "mlp", "linear_lq", "student_net", "small_cnn", "causal_transformer")
UNSUPPORTED = (
    "every sample relaxes separately, so blocks with BatchNorm, which couples samples, are not supported. In a transformer, "
    "the class token starts at 0.02, and LayerNorm magnifies the token so much that gradient descent on the energy does not "
    "converge with the method's step size"
)


def relax(inputs: CreditInputs, nudge: float, steps: int, step_size: float) -> tuple[list[Tensor], list[Tensor]]:
    """Start at the forward pass, and move the states by gradient descent on the energy.

    Args:
        inputs: states, labels and network of the batch.
        nudge: β, the weight of the loss in the energy.
        steps: number of steps.
        step_size: step size η.

    Returns:
        The shifts δ_0..δ_L and the prediction errors ε_0..ε_L, in the shapes of the states.
    """
    with quiet(inputs.network):
        branches = [block(state) for block, state in zip(inputs.network.blocks, inputs.hidden[:-1], strict=True)]
        shifts = [torch.zeros_like(state) for state in inputs.hidden]
        for _ in range(steps):
            slopes = _energy_gradient(inputs, branches, shifts, nudge)
            shifts = torch._foreach_sub(shifts, torch._foreach_mul(slopes, step_size))  # all sites in one launch
        return shifts, prediction_errors(inputs, branches, shifts)


def prediction_errors(inputs: CreditInputs, branches: Sequence[Tensor], shifts: Sequence[Tensor]) -> list[Tensor]:
    """Compute the prediction errors ε_0..ε_L at the states h^0 + δ.

    The network's function `step` is linear in state and branch, so the code applies it to differences.

    Args:
        inputs: states and network of the batch.
        branches: outputs f_l(h_{l-1}^0) of the blocks in the forward pass.
        shifts: δ_0..δ_L.
    """
    network, errors = inputs.network, [shifts[0]]
    block_inputs = zip(network.blocks, inputs.hidden[:-1], branches, shifts[:-1], shifts[1:], strict=True)
    for block, state, branch, shift, above in block_inputs:
        errors.append(above - network.step(shift, block(state + shift) - branch))
    return errors


def _energy_gradient(
    inputs: CreditInputs, branches: Sequence[Tensor], shifts: Sequence[Tensor], nudge: float
) -> tuple[Tensor, ...]:
    """Compute ∂E/∂h_0..∂E/∂h_L."""
    with torch.enable_grad():
        leaves = [shift.detach().requires_grad_() for shift in shifts]
        errors = prediction_errors(inputs, branches, leaves)
        losses = inputs.losses_of(inputs.network.readout(inputs.hidden[-1] + leaves[-1]))
        # E is never computed, because its derivatives are known: ε_l with respect to ε_l, and β with respect to every loss
        slopes = [*(error.detach() for error in errors), torch.full_like(losses, nudge)]
        return torch.autograd.grad([*errors, losses], leaves, slopes)


@contextmanager
def quiet(network: NetworkView) -> Iterator[None]:
    """Context manager: turn off the process noise of the blocks.

    A prediction error is the difference of two block outputs. Noise would not cancel in this difference, because each output has
    different noise.
    """
    noise_sources = [(module, module.noise) for module in network.modules() if isinstance(module, Noisy)]
    for module, _ in noise_sources:
        module.noise = None
    try:
        yield
    finally:
        for module, noise in noise_sources:
            module.noise = noise
