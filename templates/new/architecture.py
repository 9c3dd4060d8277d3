"""skeleton: a residual network whose blocks are one layer each. Replace it with yours."""

from __future__ import annotations

import math

import torch
from torch import nn

from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.records import Option


class Branch(nn.Module):
    """f(h) = tanh(w h): a block returns its branch; the network adds the skip."""

    def __init__(self, width, generator):
        super().__init__()
        self.w = linear(width, width, generator)

    def forward(self, state):
        return torch.tanh(self.w(state))


class Skeleton(Architecture):
    card = ArchitectureCard(
        name="skeleton",
        line="flatten → Linear → blocks h + tanh(w h) → LayerNorm → Linear",
        options={
            "d_hidden": Option(64, "width of the stream", least=1),
            "num_blocks": Option(3, "number of blocks L; 0 is the shallow control", least=0),
        },
        source="unpublished",
    )

    def build(self, options, image_shape, classes, generator):
        """Build the network from `generator` alone, so that a seed gives the same network everywhere."""
        width, inputs = int(options["d_hidden"]), math.prod(image_shape)
        return Network(
            embed=nn.Sequential(nn.Flatten(), linear(inputs, width, generator)),
            blocks=[Branch(width, generator) for _ in range(int(options["num_blocks"]))],
            out_ln=nn.LayerNorm(width),
            out_head=linear(width, classes, generator),
        )


def linear(inputs, outputs, generator):
    """Return a Linear with weights from the generator; torch's constructors use the global generator."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = inputs**-0.5
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


PLUGIN = Skeleton()
