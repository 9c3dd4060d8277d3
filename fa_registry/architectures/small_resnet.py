"""small_resnet: a narrow post-activation ResNet without strides, states of maps (N, width, H, W)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._initialise import conv, linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.positions import averaged
from fa_registry.records import Option, Scalar


class BasicBlock(nn.Module):
    """The block h ↦ ReLU(h + BN(conv(ReLU(BN(conv(h)))))), given as its residual branch f(h) = block(h) − h.

    The ReLU comes after the skip, so there is no branch in front of it that the stream could add. What block l adds to the
    stream is the difference; ∂ℓ/∂f_l = ∂ℓ/∂h_l holds for it as for any branch.
    """

    def __init__(self, width: int, generator: torch.Generator):
        super().__init__()
        self.conv1 = conv(width, width, generator, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, generator, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()

    def forward(self, state: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(state)))))
        return self.relu(state + inner) - state


class SmallResNet(Architecture):
    card = ArchitectureCard(
        name="small_resnet",
        line="3×3 stem, BN, ReLU → L post-activation basic blocks (no stride) → global average pool → Linear",
        options={
            "width": Option(64, "channels of the stream", least=1),
            "num_blocks": Option(4, "number of basic blocks L; 0 is the shallow control", least=0),
        },
        source="arXiv 2606.21126, ResNet setting; layers' initialisation is unpublished, torch's default here",
    )

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        width = int(options["width"])
        return Network(
            embed=nn.Sequential(conv(image_shape[0], width, generator, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            blocks=[BasicBlock(width, generator) for _ in range(int(options["num_blocks"]))],
            out_ln=None,
            out_head=linear(width, classes, generator),
            pool=averaged,
        )


PLUGIN = SmallResNet()
