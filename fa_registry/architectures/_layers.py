"""Layers whose initial weights are distributed as in PyTorch, but come from a given generator.

The constructors of torch use the global generator, so the weights of a run would depend on earlier random numbers in the process.
In the backward pass, Linear and Conv may use another matrix than the weight.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_input, conv2d_weight

from fa_registry.records import Option
from fa_registry.seeding import undrawn

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU, "elu": nn.ELU}
INIT = Option(
    "torch",
    "distribution of the initial weights of linear layers",
    choices=("torch", "xavier", "xavier_normal", "he"),
    omit_default=True,
)


class Linear(nn.Linear):
    """Linear layer whose backward pass may use another matrix than the weight.

    Args:
        flatten: Whether to reshape (batch, …) to (batch, features) first. An embedding of images then needs no other layer.

    Attributes:
        backward_weight: Matrix (out, in) that replaces the weight in the backward pass (weight feedback), or None.
    """

    backward_weight: Tensor | None = None

    def __init__(self, features_in: int, features_out: int, flatten: bool = False):
        super().__init__(features_in, features_out)
        self.flatten = flatten

    def forward(self, x: Tensor) -> Tensor:
        return affine(x.flatten(1) if self.flatten else x, self.weight, self.bias, self.backward_weight)


def affine(x: Tensor, weight: Tensor, bias: Tensor, backward_weight: Tensor | None) -> Tensor:
    """Return x Wᵀ + b of shape (…, out) for x of shape (…, in).

    Args:
        x: Inputs (…, in).
        weight: W (out, in).
        bias: b (out,).
        backward_weight: Matrix (out, in) that replaces W in the gradient of x, or None.
    """
    if backward_weight is None:
        return nn.functional.linear(x, weight, bias)
    return _LinearFunction.apply(x, weight, bias, backward_weight)


class _LinearFunction(torch.autograd.Function):
    """x Wᵀ + b, where `back` replaces W in the gradient of x.

    `needs_input_grad` depends on requires_grad, and not on the gradients that a caller requests. A caller that needs no gradients
    of weights therefore sets requires_grad of the weights to False. Diagnostics and credits do so.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, back: Tensor) -> Tensor:
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _, _, back = inputs
        context.save_for_backward(x, back)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x (…, in), weight (out, in) and bias (out,), each None if it is not needed.

        The gradient of x is dx = dy B with B (out, in). With B = W, dx is exact. The other gradients do not use B.

        Args:
            gradient: Gradient dy of the output (…, out).
        """
        x, back = context.saved_tensors
        for_x, for_weight, for_bias = context.needs_input_grad[:3]
        gradient_rows, input_rows = gradient.flatten(0, -2), x.flatten(0, -2)  # (batch · positions, features)
        return (
            gradient @ back if for_x else None,  # fa: ok FA013 credits only
            gradient_rows.T @ input_rows if for_weight else None,
            gradient_rows.sum(dim=0) if for_bias else None,
            None,
        )


KERNEL, PADDING = 3, 1


class Conv(nn.Conv2d):
    """3×3 convolution with stride 1 and padding 1, which does not change the size of a map.

    Attributes:
        backward_weight: Kernel (out, in, 3, 3) that replaces the weight in the backward pass, or None.
    """

    backward_weight: Tensor | None = None

    def __init__(self, channels_in: int, channels_out: int, bias: bool = True):
        super().__init__(channels_in, channels_out, KERNEL, padding=PADDING, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.backward_weight is None:
            return super().forward(x)
        return _ConvFunction.apply(x, self.weight, self.bias, self.backward_weight)


class _ConvFunction(torch.autograd.Function):
    """Convolution x ∗ W + b, where `back` replaces W in the gradient of x."""

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
        """Return the gradients of x (N, in, H, W), weight (out, in, 3, 3) and bias; None if not needed.

        Only the gradient of x uses `back`. tests/architectures/test_layers.py compares the gradients with autograd.

        Args:
            gradient: Gradient of the output (N, out, H, W).
        """
        x, back = context.saved_tensors
        for_x, for_weight, for_bias = context.needs_input_grad[:3]
        grad_x = conv2d_input(x.shape, back, gradient, padding=PADDING) if for_x else None  # fa: ok FA013 credits only
        return (
            grad_x,
            conv2d_weight(x, context.size, gradient, padding=PADDING) if for_weight else None,
            gradient.sum(dim=(0, 2, 3)) if for_bias else None,
            None,
        )


Layer = TypeVar("Layer", Linear, Conv, nn.Conv2d)


def linear(
    features_in: int, features_out: int, generator: torch.Generator, flatten: bool = False, init: str = "torch"
) -> Linear:
    """Return a Linear with initial values from the generator.

    Args:
        init: Distribution of the weight. For "torch", weight and bias are U(±1/√features_in), as in torch by default. For "xavier",
            the weight is U(±√(6/(features_in + features_out))) (Glorot and Bengio 2010, equation 16). For "xavier_normal", it has
            the same variance, N(0, 2/(features_in + features_out)). For "he", it is N(0, 2/features_in) (He et al. 2015,
            equation 10). The bias is 0 for these three.
    """
    layer = undrawn(Linear, features_in, features_out, flatten)
    if init == "torch":
        return _drawn(layer, generator)
    with torch.no_grad():
        layer.bias.zero_()
        if init == "xavier":
            bound = math.sqrt(6 / (features_in + features_out))
            layer.weight.uniform_(-bound, bound, generator=generator)
        else:
            fan = features_in if init == "he" else features_in + features_out
            layer.weight.normal_(0.0, math.sqrt(2 / fan), generator=generator)
    return layer


def conv(channels_in: int, channels_out: int, generator: torch.Generator, bias: bool = True) -> Conv:
    """Return a 3×3 Conv whose weight and bias are U(±1/√(9 · channels_in)), as in torch by default."""
    return _drawn(undrawn(Conv, channels_in, channels_out, bias), generator)


def patches(channels_in: int, channels_out: int, edge: int, generator: torch.Generator) -> nn.Conv2d:
    """Return a Conv2d that maps each square patch of `edge` pixels to one vector.

    Weight and bias are U(±1/√(edge² · channels_in)), as in torch by default. The layer is torch's Conv2d, because an embedding
    needs no backward_weight: no error is propagated through it.
    """
    return _drawn(undrawn(nn.Conv2d, channels_in, channels_out, edge, stride=edge), generator)


def _drawn(layer: Layer, generator: torch.Generator) -> Layer:
    bound = 1 / math.sqrt(layer.weight[0].numel())
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
