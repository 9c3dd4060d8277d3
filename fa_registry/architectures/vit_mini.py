"""vit_mini: a small vision transformer, states of tokens (N, 1 + patches, D)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._initialise import linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.records import Option, Scalar

MLP_RATIO = 4
POSITION_STD = 0.02


class Patches(nn.Module):
    """Images (N, C, H, W) → tokens (N, 1 + patches, D): a class token, then one token a patch, plus learned positions."""

    def __init__(self, image_shape: tuple[int, ...], patch: int, width: int, generator: torch.Generator):
        super().__init__()
        channels, height, breadth = image_shape
        self.patch = patch
        self.proj = linear(channels * patch * patch, width, generator)
        count = (height // patch) * (breadth // patch)
        self.cls_token = nn.Parameter(_positions(1, width, generator))
        self.pos_embed = nn.Parameter(_positions(1 + count, width, generator))

    def forward(self, x: Tensor) -> Tensor:
        pieces = nn.functional.unfold(x, self.patch, stride=self.patch)  # (N, C · patch², patches)
        tokens = self.proj(pieces.transpose(1, 2))  # (N, patches, D)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1) + self.pos_embed


class Attention(nn.Module):
    """Multi-head self-attention over tokens (N, T, D)."""

    def __init__(self, width: int, heads: int, generator: torch.Generator):
        super().__init__()
        self.heads = heads
        self.qkv = linear(width, 3 * width, generator)
        self.proj = linear(width, width, generator)

    def forward(self, tokens: Tensor) -> Tensor:
        N, T, D = tokens.shape
        query, key, value = self.qkv(tokens).view(N, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)  # (N, heads, T, D / heads)
        return self.proj(mixed.transpose(1, 2).reshape(N, T, D))


class TransformerBranch(nn.Module):
    """f(h) of a pre-LN block: a + mlp(LN(h + a)), a = attention(LN(h)). The network adds h."""

    def __init__(self, width: int, heads: int, generator: torch.Generator):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, generator)
        self.ln2 = nn.LayerNorm(width)
        self.w1 = linear(width, MLP_RATIO * width, generator)
        self.w2 = linear(MLP_RATIO * width, width, generator)
        self.gelu = nn.GELU()

    def forward(self, tokens: Tensor) -> Tensor:
        attended = self.attn(self.ln1(tokens))
        return attended + self.w2(self.gelu(self.w1(self.ln2(tokens + attended))))


class VisionTransformer(Network):
    """broadcast: where a credit of one row a sample goes, "all" tokens (as the paper) or the "class" token alone."""

    broadcast = "all"

    def spread(self, credit: Tensor, state: Tensor) -> Tensor:
        if self.broadcast == "all" or credit.dim() == state.dim():
            return super().spread(credit, state)
        return torch.cat([credit[:, None], torch.zeros_like(state[:, 1:])], dim=1)


class VitMini(Architecture):
    card = ArchitectureCard(
        name="vit_mini",
        line="patches → class token, positions → L pre-LN transformer blocks → LN → class token → Linear",
        options={
            "d_hidden": Option(128, "width D of a token", least=1),
            "num_blocks": Option(4, "number of blocks L; 0 is the shallow control", least=0),
            "heads": Option(4, "attention heads of a block", least=1),
            "patch": Option(4, "pixels along an edge of a patch", least=1),
            "broadcast": Option(
                "all", "tokens that share a credit of one row a sample: all, or class", choices=("all", "class")
            ),
        },
        source="arXiv 2606.21126, ViT setting; names inside a block and its layers' initialisation are unpublished, chosen here",
    )

    def check(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...]) -> list[str]:
        _, height, breadth = image_shape
        width, heads, patch = int(options["d_hidden"]), int(options["heads"]), int(options["patch"])
        problems = []
        if height % patch or breadth % patch:
            problems.append(f"patch: expected a divisor of the images' {height}×{breadth} pixels, found {patch}")
        if width % heads:
            problems.append(f"heads: expected a divisor of d_hidden {width}, found {heads}")
        return problems

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        width, heads, patch = int(options["d_hidden"]), int(options["heads"]), int(options["patch"])
        network = VisionTransformer(
            embed=Patches(image_shape, patch, width, generator),
            blocks=[TransformerBranch(width, heads, generator) for _ in range(int(options["num_blocks"]))],
            out_ln=nn.LayerNorm(width),
            out_head=linear(width, classes, generator),
            pool=class_token,
        )
        network.broadcast = str(options["broadcast"])
        return network


def class_token(tokens: Tensor) -> Tensor:
    """(N, T, D) → (N, D)."""
    return tokens[:, 0]


def _positions(count: int, width: int, generator: torch.Generator) -> Tensor:
    """(1, count, D) from a normal of standard deviation .02, cut at two of them as is usual for learned positions."""
    return nn.init.trunc_normal_(
        torch.empty(1, count, width), std=POSITION_STD, a=-2 * POSITION_STD, b=2 * POSITION_STD, generator=generator
    )


PLUGIN = VitMini()
