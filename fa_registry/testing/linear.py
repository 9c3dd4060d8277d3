"""A linear residual network: on it the theory names the feedback state for which a rule *is* backpropagation.

Where the setting's architecture has states with positions, so has this one: tokens that share every layer and are read by their
mean. There the theory speaks of the position average, and the exact gradient is the same at every token: what a method forgets
to divide by their number shows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network
from fa_registry.positions import averaged
from fa_registry.seeding import derive
from fa_registry.testing.cases import CLASSES, IMAGE_SHAPE, Case, Setting, batch, draw_feedback
from fa_registry.training.task import network_shape

WIDTH, DEPTH = 8, 3


def linear_case(setting: Setting) -> tuple[Case, list[Tensor], list[Tensor]]:
    """A linear residual network without LayerNorm, the Jacobian of each block, and that of the logits at sites 1..L."""
    stream = torch.Generator().manual_seed(derive(setting.seed, "linear network"))
    blocks = [_layer(WIDTH, WIDTH, stream) for _ in range(DEPTH)]
    flatten = nn.Flatten(2 if _has_positions(setting) else 1)  # one token a channel, or one vector
    embed = nn.Sequential(flatten, _layer(math.prod(IMAGE_SHAPE[flatten.start_dim - 1 :]), WIDTH, stream))
    network = Network(embed, blocks, out_ln=None, out_head=_layer(WIDTH, CLASSES, stream), pool=averaged)
    jacobians = [torch.eye(WIDTH, dtype=torch.float64) + block.weight.detach() for block in blocks]
    outputs = [network.out_head.weight.detach()]  # (classes, hidden)
    for jacobian in reversed(jacobians[1:]):
        outputs.append(outputs[-1] @ jacobian)
    images, labels = batch(setting.seed)
    shape = network_shape(network, images[:1], CLASSES)
    feedback = draw_feedback(setting.method, shape, setting.seed, setting.method_options).double()
    return Case(setting.method, network, feedback, images, labels), jacobians, outputs[::-1]


def _has_positions(setting: Setting) -> bool:
    case = setting.case()
    with torch.no_grad():
        return any(state.dim() > 2 for state in case.network.hidden(case.images[:2]))


def _layer(features_in: int, features_out: int, stream: torch.Generator) -> nn.Linear:
    """A float64 Linear drawn from `stream`, not from the global generator."""
    layer = nn.utils.skip_init(nn.Linear, features_in, features_out, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.normal_(0.0, features_in**-0.5, generator=stream)
        layer.bias.normal_(0.0, 0.1, generator=stream)
    return layer
