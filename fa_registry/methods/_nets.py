"""Small networks that methods train as part of their feedback.

The initial weights come from a given generator. torch's constructors would use the global generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from fa_registry.seeding import undrawn


def perceptron(
    sizes: Sequence[int], generator: torch.Generator, activation: Callable[[], nn.Module] = nn.GELU
) -> nn.Sequential:
    """Return a perceptron that maps (…, sizes[0]) to (…, sizes[-1]).

    Args:
        sizes: widths of input, hidden layers and output.
        generator: generator for the initial weights and biases.
        activation: activation between the linear layers; no activation follows the last layer.
    """
    layers: list[nn.Module] = []
    for features_in, features_out in pairwise(sizes):
        layers += [_linear(features_in, features_out, generator), activation()]
    return nn.Sequential(*layers[:-1])


def noise_like(state: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw standard normal noise with the shape and dtype of a state.

    If there is no generator, the noise is zero, because the global generator must not be used.
    """
    if generator is None:
        return torch.zeros_like(state)
    return torch.randn(state.shape, generator=generator, device=state.device, dtype=state.dtype)


def _linear(features_in: int, features_out: int, generator: torch.Generator) -> nn.Linear:
    """Return a layer with weight and bias ~ U(±1/√features_in).

    This is the distribution of torch's default constructor.
    """
    layer = undrawn(nn.Linear, features_in, features_out)
    bound = 1 / math.sqrt(features_in)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
