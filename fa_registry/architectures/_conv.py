"""Conv: torch's own 3×3 convolution, which can carry an error back through another kernel (weight feedback)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_input, conv2d_weight

KERNEL, PADDING = 3, 1


class Conv(nn.Conv2d):
    """3×3, stride 1, padding 1: maps keep their size. backward_weight: as in Linear, (out, in, 3, 3)."""

    backward_weight: Tensor | None = None

    def __init__(self, channels_in: int, channels_out: int, bias: bool = True, device: torch.device | None = None):
        super().__init__(channels_in, channels_out, KERNEL, padding=PADDING, bias=bias, device=device)

    def forward(self, x: Tensor) -> Tensor:
        if self.backward_weight is None:
            return super().forward(x)
        return _ConvFunction.apply(x, self.weight, self.bias, self.backward_weight)


class _ConvFunction(torch.autograd.Function):
    """x ∗ W + b, whose error goes back through `back`."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, back: Tensor) -> Tensor:
        return nn.functional.conv2d(x, weight, bias, padding=PADDING)

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, back = inputs
        context.save_for_backward(x, back)
        context.size = weight.shape

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """gradient (N, out, H, W) → those of x (N, in, H, W), weight (out, in, 3, 3) and bias (out,); None where not asked for.

        Only x's goes through `back`; the weight's is that of W itself. Held to autograd in tests/architectures/test_conv.py.
        """
        x, back = context.saved_tensors
        for_x, for_weight, for_bias = context.needs_input_grad[:3]
        return (
            conv2d_input(x.shape, back, gradient, padding=PADDING) if for_x else None,
            conv2d_weight(x, context.size, gradient, padding=PADDING) if for_weight else None,
            gradient.sum(dim=(0, 2, 3)) if for_bias else None,
            None,
        )
