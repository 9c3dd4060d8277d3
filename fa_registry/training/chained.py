"""The step of a method that replaces the weights an error travels back through (methods.base.ReplacesWeights).

Its credits need no pass of their own where samples do not interact: block l's backward pass under norm(c_l) gives its weights'
gradients and, row by row, a multiple of what c_l leaves at its input: one forward and one backward pass, as backpropagation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network
from fa_registry.methods._replaced import backward_through
from fa_registry.training.norms import scales


def chained_backward(
    network: Network,
    states: Sequence[Tensor],
    embedded: Tensor,
    branches: Sequence[Tensor],
    top_credit: Tensor,
    penalty: float,
    credit_norm: str,
    eps: float,
) -> None:
    """Fill every block's and the embedding's .grad, from the top down.

    states: h_0..h_{L−1} (N, …), leaves that require grad; branches f_l of states[l−1], built under `backward_through`.
    top_credit: c_L (N, …). eps: see norms.norm_eps. The gradients are those of local_step with c_{l−1} = c_l (skip) + what c_l
    leaves through the branch.
    """
    count, credit = len(embedded), top_credit
    for block, state, branch in zip(reversed(network.blocks), reversed(states), reversed(branches), strict=True):
        scale = scales(credit, credit_norm, eps) * count  # (batch, 1, …): norm(c)/N = c / scale
        root = credit / scale
        if penalty or couples_samples(
            block
        ):  # the penalty is no part of the credit; coupled rows have no scale of their own
            below = torch.autograd.grad(branch, state, credit, retain_graph=True)[0]
            torch.autograd.backward(branch, root + branch.detach() * (2 * penalty / count))
        else:
            torch.autograd.backward(branch, root)
            below = state.grad * _rows(scale, state)
        credit = below + credit if network.residual else below
    if embedded.requires_grad:
        torch.autograd.backward(embedded, credit / (scales(credit, credit_norm, eps) * count))


def couples_samples(block: nn.Module) -> bool:
    """Whether a sample's branch depends on the other samples of its batch: a BatchNorm that follows the batch."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training for module in block.modules())


def _rows(scale: Tensor | float, state: Tensor) -> Tensor | float:
    """A scale (N, 1, …) of the block's output, for its input, which may have other dimensions."""
    return scale.reshape(-1, *[1] * (state.dim() - 1)) if isinstance(scale, Tensor) else scale


def top_credit(network: Network, matrices: Mapping[str, Tensor], top: Tensor, error: Tensor) -> Tensor:
    """c_L: what e leaves at h_L, the head's own weight replaced too."""
    leaf = top.detach().requires_grad_()
    with backward_through(network, matrices):
        logits = network.readout(leaf)
    return torch.autograd.grad(logits, leaf, error)[0]
