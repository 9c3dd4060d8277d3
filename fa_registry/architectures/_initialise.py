"""Layers with PyTorch's default initialisation, drawn from a generator that is passed in.

torch's own constructors draw from the global generator, which would tie a run's weights to whatever ran before it.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import nn

from fa_registry.architectures._conv import Conv
from fa_registry.architectures._linear import Linear

Layer = TypeVar("Layer", Linear, Conv, nn.Conv2d)


def linear(features_in: int, features_out: int, generator: torch.Generator, flatten: bool = False) -> Linear:
    """A Linear with weight and bias ~ U(±1/√features_in), as its default constructor draws them."""
    return _drawn(nn.utils.skip_init(Linear, features_in, features_out, flatten), generator)


def conv(channels_in: int, channels_out: int, generator: torch.Generator, bias: bool = True) -> Conv:
    """A 3×3 Conv with weight and bias ~ U(±1/√(9 · channels_in)), as its default constructor draws them."""
    return _drawn(nn.utils.skip_init(Conv, channels_in, channels_out, bias), generator)


def patches(channels_in: int, channels_out: int, edge: int, generator: torch.Generator) -> nn.Conv2d:
    """A Conv2d over squares of `edge` pixels side by side, with weight and bias ~ U(±1/√(edge² · channels_in)), as its default
    constructor draws them. No error passes below an embedding, so it is torch's own layer."""
    return _drawn(nn.utils.skip_init(nn.Conv2d, channels_in, channels_out, edge, stride=edge), generator)


def _drawn(layer: Layer, generator: torch.Generator) -> Layer:
    bound = 1 / math.sqrt(layer.weight[0].numel())
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
