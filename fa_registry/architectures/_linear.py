"""Linear: torch's own layer, with float32 products on a CPU with AVX-512 sent to oneDNN.

torch multiplies float32 matrices with MKL, which runs far below oneDNN's rate on such processors of another maker, and a
little above it where there is AVX2 alone; `make bench` prints the published loop with either layer. Gradients agree to 1e-6
relative; the same batch gives the same bits, whole or split. Everywhere else (GPU, float64, other shapes, autocast) this is
nn.Linear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Multiply = Callable[..., Tensor]
AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
WORTHWHILE = AVAILABLE and torch.backends.cpu.get_cpu_capability().startswith("AVX512")


class Linear(nn.Linear):
    """flatten: turn (batch, …) into (batch, features) first, so that an embedding of images is one layer with one name.

    backward_weight: a matrix (out, in) that stands in for the weight when an error passes back (weight feedback); None: exact.
    """

    backward_weight: Tensor | None = None

    def __init__(self, features_in: int, features_out: int, flatten: bool = False, device: torch.device | None = None):
        super().__init__(features_in, features_out, device=device)
        self.flatten = flatten

    def forward(self, x: Tensor) -> Tensor:
        return affine(x.flatten(1) if self.flatten else x, self.weight, self.bias, self.backward_weight)


def affine(x: Tensor, weight: Tensor, bias: Tensor, backward_weight: Tensor | None) -> Tensor:
    """x Wᵀ + b, (…, in) → (…, out), whose error goes back through `backward_weight`, or through W where that is None."""
    plain = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32 and x.dim() == 2
    fast = WORTHWHILE and plain and not torch.is_autocast_enabled("cpu")
    if fast or backward_weight is not None:
        back = weight if backward_weight is None else backward_weight
        return _LinearFunction.apply(x, weight, bias, back, product if fast else matmul)
    return nn.functional.linear(x, weight, bias)


class _LinearFunction(torch.autograd.Function):
    """x Wᵀ + b, whose error goes back through `back`. `needs_input_grad` says what requires grad, not what a partial backward
    asks for, so a caller that wants gradients of states alone holds the weights (diagnostics and credits do)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, back: Tensor, multiply: Multiply) -> Tensor:
        return multiply(x, weight, bias)

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _, _, back, context.multiply = inputs
        context.save_for_backward(x, back)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """gradient (…, out) → those of x (…, in), weight (out, in) and bias (out,); None where not asked for.

        dx = dy B with B (out, in) as W is, so that B = W is the exact layer. Only x's goes through it.
        """
        x, back = context.saved_tensors
        for_x, for_weight, for_bias = context.needs_input_grad[:3]
        rows, seen = gradient.flatten(0, -2), x.flatten(0, -2)  # (batch · positions, features)
        return (
            context.multiply(gradient, back.T) if for_x else None,
            context.multiply(rows.T, seen.T) if for_weight else None,
            rows.sum(dim=0) if for_bias else None,
            None,
            None,
        )


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left rightᵀ + bias by oneDNN; all float32 on the CPU. left (n, k), right (m, k), bias (m,) → (n, m)."""
    return torch.ops.mkldnn._linear_pointwise.default(left, right, bias, "none", [], "")


def matmul(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left rightᵀ + bias by torch, on any device and in any type."""
    return nn.functional.linear(left, right, bias)
