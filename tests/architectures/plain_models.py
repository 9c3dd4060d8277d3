"""The usual way to write our architectures, with torch's own layers: what a user's model looks like, and its autograd figures."""

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


class PlainBasicBlock(nn.Module):
    """The skip is inside, and a ReLU behind it."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class PlainTransformerBlock(nn.Module):
    """Both skips are inside; attention is torch's."""

    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.w1, self.w2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.w2(nn.functional.gelu(self.w1(self.ln2(x))))


class PlainPatches(nn.Module):
    """Patches by a strided convolution."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(SHAPE[0], WIDTH, PATCH, stride=PATCH)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + SHAPE[1] * SHAPE[2] // PATCH**2, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.proj(x).flatten(2).transpose(1, 2)  # (N, patches, D)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1) + self.pos_embed


class PlainModel(nn.Module):
    """embed, blocks, readout. skip: where h + f(h) is written."""

    def __init__(self, embed: nn.Module, blocks: list[nn.Module], readout: str, skip: str):
        super().__init__()
        self.embed, self.blocks = embed, nn.ModuleList(blocks)
        if readout != "mean":
            self.out_ln = nn.LayerNorm(WIDTH)
        self.out_head = nn.Linear(WIDTH, CLASSES)
        self.readout, self.skip = readout, skip

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h) if self.skip == "inside" else h + block(h)
        return self.read(h)

    def read(self, h: Tensor) -> Tensor:
        if self.readout == "mean":
            return self.out_head(h.mean(dim=(2, 3)))
        return self.out_head(self.out_ln(h[:, 0] if self.readout == "class" else h))


@dataclass(frozen=True)
class Pair:
    """Our network and the plain model with its weights, float64, in eval mode."""

    ours: Network
    plain: PlainModel


def small_resnet() -> Pair:
    stem = nn.Sequential(nn.Conv2d(SHAPE[0], WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU())
    plain = PlainModel(stem, [PlainBasicBlock() for _ in range(DEPTH)], "mean", "inside")
    return _paired(build(SMALL_RESNET, SHAPE, width=WIDTH, num_blocks=DEPTH), plain)


def vit_mini() -> Pair:
    plain = PlainModel(PlainPatches(), [PlainTransformerBlock() for _ in range(DEPTH)], "class", "inside")
    return _paired(build(VIT_MINI, SHAPE, d_hidden=WIDTH, num_blocks=DEPTH, heads=HEADS, patch=PATCH), plain)


def resmlp() -> Pair:
    def branch() -> nn.Module:
        layers = {"ln": nn.LayerNorm(WIDTH), "w1": nn.Linear(WIDTH, WIDTH), "gelu": nn.GELU()}
        return nn.Sequential(OrderedDict(layers, w2=nn.Linear(WIDTH, WIDTH)))

    inputs = SHAPE[0] * SHAPE[1] * SHAPE[2]
    plain = PlainModel(nn.Linear(inputs, WIDTH), [branch() for _ in range(DEPTH)], "", "outside")
    pair = _paired(build(RESMLP, SHAPE, d_hidden=WIDTH, num_blocks=DEPTH, w2_std=0.5), plain)
    plain.embed = nn.Sequential(nn.Flatten(), plain.embed)
    return pair


PAIRS = {"small_resnet": small_resnet, "vit_mini": vit_mini, "resmlp": resmlp}


def _paired(ours: Network, plain: PlainModel) -> Pair:
    """Copy our weights into the plain model, after every norm and bias was moved off its initial value."""
    stream = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in ours.state_dict().items():
            if value.dim() == 1:
                noise = torch.randn(value.shape, generator=stream) * 0.3
                value.add_(noise.square() if name.endswith("running_var") else noise)
    own = plain.state_dict()
    renamed = {_plain_name(name): value for name, value in ours.state_dict().items()}
    plain.load_state_dict({name: value.reshape(own[name].shape) for name, value in renamed.items()})
    return Pair(ours.double().eval(), plain.double().eval())


def _plain_name(name: str) -> str:
    return name.replace("attn.qkv.", "attn.in_proj_").replace("attn.proj.", "attn.out_proj.")


def autograd_figures(
    plain: PlainModel, x: Tensor, y: Tensor, skip: str = ""
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits, states and gradients of the summed loss of the model run block by block; skip: other than the model's own."""
    states = [plain.embed(x)]
    for block in plain.blocks:
        h = states[-1]
        states.append(block(h) if (skip or plain.skip) == "inside" else h + block(h))
    logits = plain.read(states[-1])
    loss = nn.functional.cross_entropy(logits, y, reduction="sum")
    return logits, states, list(torch.autograd.grad(loss, states))
