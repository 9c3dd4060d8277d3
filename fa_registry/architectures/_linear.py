"""Linear: torch's own layer, with float32 products on the CPU sent to oneDNN.

torch multiplies float32 matrices with MKL, which runs far below oneDNN's rate on processors of another maker; `make bench`
prints the published loop with either layer. Gradients agree to 1e-6 relative; the same batch gives the
same bits, whole or split. Everywhere else (GPU, float64, other shapes) this is nn.Linear.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear(nn.Linear):
    """flatten: turn (batch, …) into (batch, features) first, so that an embedding of images is one layer with one name."""

    def __init__(self, features_in: int, features_out: int, flatten: bool = False, device: torch.device | None = None):
        super().__init__(features_in, features_out, device=device)
        self.flatten = flatten

    def forward(self, x: Tensor) -> Tensor:
        if self.flatten:
            x = x.flatten(1)
        if AVAILABLE and x.device.type == "cpu" and x.dtype == self.weight.dtype == torch.float32 and x.dim() == 2:
            return _OneDnnLinear.apply(x, self.weight, self.bias)
        return super().forward(x)


class _OneDnnLinear(torch.autograd.Function):
    """x Wᵀ + b and its gradients. `needs_input_grad` says what requires grad, not what a partial backward asks for, so a
    caller that wants gradients of states alone passes weights that require none (diagnostics do)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return product(x, weight, bias)

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        context.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = context.saved_tensors
        for_x, for_weight, for_bias = context.needs_input_grad
        return (
            product(gradient, weight.T) if for_x else None,
            product(gradient.T, x.T) if for_weight else None,
            gradient.sum(dim=0) if for_bias else None,
        )


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left rightᵀ + bias by oneDNN; all float32 on the CPU. left (n, k), right (m, k), bias (m,) → (n, m)."""
    return torch.ops.mkldnn._linear_pointwise.default(left, right, bias, "none", [], "")
