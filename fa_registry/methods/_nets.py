"""Small learned nets of a feedback state, initialised from a generator argument.

torch's own constructors use the global generator.
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
    """Return linear layers (…, sizes[0]) → (…, sizes[-1]) with `activation` between them."""
    layers: list[nn.Module] = []
    for features_in, features_out in pairwise(sizes):
        layers += [_linear(features_in, features_out, generator), activation()]
    return nn.Sequential(*layers[:-1])


def noise_like(state: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return standard normal noise with the state's shape and dtype.

    Returns zeros if there is no generator, so that the global generator is never used.
    """
    if generator is None:
        return torch.zeros_like(state)
    return torch.randn(state.shape, generator=generator, device=state.device, dtype=state.dtype)


def _linear(features_in: int, features_out: int, generator: torch.Generator) -> nn.Linear:
    """Return a layer with weight and bias ~ U(±1/√features_in), as torch's default constructor draws them."""
    layer = undrawn(nn.Linear, features_in, features_out)
    bound = 1 / math.sqrt(features_in)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
