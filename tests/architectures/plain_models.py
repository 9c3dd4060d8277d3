"""Our architectures as they are published and usually written, with torch's own layers and initialisation, and their figures by
autograd: what a user's model looks like, and what its checkpoint holds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network
from fa_registry.architectures.resmlp import PLUGIN as RESMLP
from fa_registry.architectures.small_resnet import PLUGIN as SMALL_RESNET
from fa_registry.architectures.vit_mini import PLUGIN as VIT_MINI
from tests.architectures.drawing import CLASSES, build

SHAPE, WIDTH, HEADS, PATCH, DEPTH = (3, 8, 12), 16, 4, 4, 3


class PlainModel(nn.Module):
    """A subclass says how images become h_0 and how h_L is read. skip: where h + f(h) is written."""

    skip = "inside"

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h) if self.skip == "inside" else h + block(h)
        return self.read(h)


class PlainBasicBlock(nn.Module):
    """The skip is inside, and a ReLU behind it."""

    def __init__(self, width: int):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class PlainResNet(PlainModel):
    def __init__(self, shape=SHAPE, width=WIDTH, depth=DEPTH, classes=CLASSES):
        super().__init__()
        self.stem_conv = nn.Conv2d(shape[0], width, 3, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(PlainBasicBlock(width) for _ in range(depth))
        self.out_head = nn.Linear(width, classes)

    def embed(self, x: Tensor) -> Tensor:
        return torch.relu(self.stem_bn(self.stem_conv(x)))

    def read(self, h: Tensor) -> Tensor:
        return self.out_head(nn.functional.adaptive_avg_pool2d(h, 1).flatten(1))


class PlainTransformerBlock(nn.Module):
    """Both skips are inside; attention is torch's."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        wide, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(wide, nn.GELU(), nn.Dropout(0.0), narrow, nn.Dropout(0.0))

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln1(x)
        x = x + self.attn(h, h, h)[0]
        return x + self.mlp(self.ln2(x))


class PlainVit(PlainModel):
    def __init__(self, shape=SHAPE, width=WIDTH, depth=DEPTH, classes=CLASSES, heads=HEADS):
        super().__init__()
        self.patch_embed = nn.Conv2d(shape[0], width, PATCH, stride=PATCH)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + shape[1] * shape[2] // PATCH**2, width))
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.blocks = nn.ModuleList(PlainTransformerBlock(width, heads) for _ in range(depth))
        self.out_ln, self.out_head = nn.LayerNorm(width), nn.Linear(width, classes)

    def embed(self, x: Tensor) -> Tensor:
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2)  # (N, patches, D)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1) + self.pos_embed

    def read(self, h: Tensor) -> Tensor:
        return self.out_head(self.out_ln(h[:, 0]))


class PlainResMLP(PlainModel):
    """`embed` is a layer; its images arrive flat."""

    skip = "outside"

    def __init__(self, shape=SHAPE, width=WIDTH, depth=DEPTH, classes=CLASSES):
        super().__init__()
        self.embed = nn.Linear(shape[0] * shape[1] * shape[2], width)
        self.blocks = nn.ModuleList(_branch(width) for _ in range(depth))
        self.out_ln, self.out_head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))

    def read(self, h: Tensor) -> Tensor:
        return self.out_head(self.out_ln(h))


def _branch(width: int) -> nn.Module:
    layers = {"ln": nn.LayerNorm(width), "w1": nn.Linear(width, width), "gelu": nn.GELU()}
    branch = nn.Sequential(OrderedDict(layers, w2=nn.Linear(width, width)))
    nn.init.normal_(branch.w2.weight, std=0.01)
    nn.init.zeros_(branch.w2.bias)
    return branch


PLAIN = {"small_resnet": PlainResNet, "vit_mini": PlainVit, "resmlp": PlainResMLP}


def ours(name: str, seed: int = 0, **options: float) -> Network:
    """The catalog's architecture of the plain model's sizes, drawn from the seed."""
    if name == "small_resnet":
        return build(SMALL_RESNET, SHAPE, seed, width=WIDTH, num_blocks=DEPTH)
    if name == "vit_mini":
        return build(VIT_MINI, SHAPE, seed, d_hidden=WIDTH, num_blocks=DEPTH, heads=HEADS, patch=PATCH)
    return build(RESMLP, SHAPE, seed, d_hidden=WIDTH, num_blocks=DEPTH, **options)


@dataclass(frozen=True)
class Pair:
    """Our network and the plain model with its weights, float64, in eval mode."""

    ours: Network
    plain: PlainModel


def pair(name: str) -> Pair:
    """Under the names that they both have, after every norm and bias was moved off its initial value."""
    # at std .01 every branch is nearly zero: all sites look alike
    network, plain = ours(name, **({"w2_std": 0.5} if name == "resmlp" else {})), PLAIN[name]()
    moved_off_start(network)
    plain.load_state_dict(network.state_dict(), strict=True)
    return Pair(network.double().eval(), plain.double().eval())


def moved_off_start(network: nn.Module) -> None:
    """Add noise to every vector of weights and running statistics, which start at 0 or 1 and would hide a fault."""
    stream = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.dim() == 1:
                noise = torch.randn(value.shape, generator=stream) * 0.3
                value.add_(noise.square() if name.endswith("running_var") else noise)


def autograd_figures(
    plain: PlainModel, x: Tensor, y: Tensor, skip: str = ""
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits, states and gradients of the summed loss of the model run block by block; skip: other than the model's own."""
    states = [plain.embed(x.flatten(1) if isinstance(plain, PlainResMLP) else x)]
    for block in plain.blocks:
        h = states[-1]
        states.append(block(h) if (skip or plain.skip) == "inside" else h + block(h))
    logits = plain.read(states[-1])
    loss = nn.functional.cross_entropy(logits, y, reduction="sum")
    return logits, states, list(torch.autograd.grad(loss, states))
