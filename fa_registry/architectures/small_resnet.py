"""small_resnet: a ResNet without strides, with ReLU after each skip and states (N, width, H, W).

Names and initial distributions are those of the published code. The distribution is torch's default: kaiming uniform with a = √5,
which is U(±1/√fan_in).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._layers import conv, linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.records import Option, Scalar
from fa_registry.token_axes import mean_over_positions


class BasicBlock(nn.Module):
    """Branch f(h) = block(h) − h, where block(h) = ReLU(h + BN(conv(ReLU(BN(conv(h)))))).

    The ReLU follows the skip, so the block's layers compute no branch that is added to h. The branch f is therefore defined as a
    difference. ∂ℓ/∂f_l = ∂ℓ/∂h_l is valid for f, as it is for any branch.
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


class ResNet(Network):
    """Network whose embedding consists of stem_conv, stem_bn and a ReLU.

    Both layers are at the top level of the state dict, as in the published code.
    """

    def __init__(self, stem_conv: nn.Conv2d, blocks: list[nn.Module], out_head: nn.Module):
        super().__init__(None, blocks, out_ln=None, out_head=out_head, pool=mean_over_positions)
        self.stem_conv = stem_conv
        self.stem_bn = nn.BatchNorm2d(stem_conv.out_channels)

    def embed(self, x: Tensor) -> Tensor:
        """Return h_0 (N, width, H, W) for images (N, C, H, W)."""
        return self.stem_bn(self.stem_conv(x)).relu()


class SmallResNet(Architecture):
    card = ArchitectureCard(
        name="small_resnet",
        version=2,  # published names and initial distributions
        line="3×3 convolution, BN, ReLU → L post-activation basic blocks (no stride) → global average pool → Linear",
        options={
            "width": Option(64, "number of channels of the residual stream", least=1),
            "num_blocks": Option(4, "number of basic blocks L; 0 is the shallow control", least=0),
        },
        source="arXiv 2606.21126, ResNet setting: published names, and torch's default initialisation of every layer",
    )

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        width = int(options["width"])
        block = 2 * (9 * width * width + 2 * width)
        return (9 * image_shape[0] + 2) * width + int(options["num_blocks"]) * block + (width + 1) * classes

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network whose states are maps (N, width, H, W) with the size of the images.

        The input of the head is the mean of the maps over positions, (N, width).
        """
        width = int(options["width"])
        return ResNet(
            stem_conv=conv(image_shape[0], width, generator, bias=False),
            blocks=[BasicBlock(width, generator) for _ in range(int(options["num_blocks"]))],
            out_head=linear(width, classes, generator),
        )


PLUGIN = SmallResNet()
