"""Layers with PyTorch's default initialisation, drawn from a generator that is passed in.

torch's own constructors draw from the global generator, which would tie a run's weights to whatever ran before it.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from fa_registry.architectures._linear import Linear


def linear(features_in: int, features_out: int, generator: torch.Generator, flatten: bool = False) -> Linear:
    """A Linear with weight and bias ~ U(±1/√features_in), as its default constructor draws them."""
    layer = nn.utils.skip_init(Linear, features_in, features_out, flatten)
    bound = 1 / math.sqrt(features_in)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
