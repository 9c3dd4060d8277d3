"""vit_mini: a small vision transformer with tokens (N, 1 + patches, D) as states.

Names and initial distributions are those of the published code. Attention is initialised as in nn.MultiheadAttention. Every other
layer has torch's default initialisation.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._block_form import BLOCK_OPTIONS, OPTIONS, BlockForm, scaled
from fa_registry.architectures._layers import affine, linear, patches
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.errors import Problem
from fa_registry.records import Option, Scalar

MLP_RATIO = 4
POSITION_STD, POSITION_BOUND = 0.02, 2.0


class Attention(nn.Module):
    """Multi-head self-attention over tokens (N, T, D).

    Names and initial distributions are those of nn.MultiheadAttention. If `causal` is true, a position attends only to itself and
    to earlier positions.

    Attributes:
        backward_weight: Matrix (3D, D) that replaces in_proj_weight in the backward pass, or None. in_proj_weight computes
            queries, keys and values. It is not a separate layer in nn.MultiheadAttention.
    """

    backward_weight: Tensor | None = None

    def __init__(self, width: int, heads: int, generator: torch.Generator, causal: bool = False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        # queries, keys and values share one matrix, so the bound √(6/(3D + D)) is below that of three square matrices
        nn.init.xavier_uniform_(self.in_proj_weight, generator=generator)
        self.out_proj = linear(width, width, generator)
        nn.init.zeros_(self.out_proj.bias)

    @property
    def weight(self) -> nn.Parameter:
        """The weight in_proj_weight, which `backward_weight` replaces in the backward pass."""
        return self.in_proj_weight

    def forward(self, tokens: Tensor) -> Tensor:
        N, T, D = tokens.shape
        projected = affine(tokens, self.in_proj_weight, self.in_proj_bias, self.backward_weight)  # (N, T, 3D)
        query, key, value = projected.view(N, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.causal
        )  # (N, heads, T, D / heads)
        return self.out_proj(mixed.transpose(1, 2).reshape(N, T, D))


class TransformerBranch(nn.Module):
    """Branch of a transformer block, with the scale s of `form` and its norm LN.

    A pre-norm block is f(h) = a + s mlp(LN(h + a)) with a = s attention(LN(h)). A post-norm block is f(h) = LN(u + s mlp(u)) − h
    with u = LN(h + s attention(h)). The network adds h to f(h).
    """

    def __init__(self, width: int, heads: int, generator: torch.Generator, form: BlockForm, causal: bool = False):
        super().__init__()
        self.stream = "ln2" if form.place == "post" else ""
        self.scale, self.dropout = form.new_scale(), form.new_dropout()
        self.ln1 = form.new_norm(width)
        self.attn = Attention(width, heads, generator, causal)
        self.ln2 = form.new_norm(width)
        self.mlp = nn.Sequential(
            linear(width, MLP_RATIO * width, generator),
            nn.GELU(),
            nn.Dropout(0.0),  # the published rate; with this module, the second layer has the published name mlp.3
            linear(MLP_RATIO * width, width, generator),
            nn.Dropout(0.0),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        if self.stream:
            inner = self.ln1(tokens + scaled(self.scale, self.attn(tokens), self.dropout))
            return self.ln2(inner + scaled(self.scale, self.mlp(inner), self.dropout)) - tokens
        attended = scaled(self.scale, self.attn(self.ln1(tokens)), self.dropout)
        return attended + scaled(self.scale, self.mlp(self.ln2(tokens + attended)), self.dropout)


def block_size(width: int, form: BlockForm) -> int:
    """Return the number of weights of one TransformerBranch."""
    layers = (4 + 2 * MLP_RATIO) * width * width + (5 + MLP_RATIO) * width
    return layers + 2 * form.norm_size(width) + form.scale_size


class VisionTransformer(Network):
    """Vision transformer whose embedding has the parts cls_token, patch_embed and pos_embed.

    h_0 is the sum of pos_embed and the tokens, which are cls_token and the outputs of patch_embed. The three names are at the top
    level of the state dict, as in the published code.

    Args:
        patch_embed: Convolution that maps each patch to a token.
        cls_token: Class token (1, 1, D).
        pos_embed: Position embedding (1, 1 + patches, D).
        blocks: Branches f_1..f_L.
        out_ln: Norm before the head.
        out_head: Module that computes the logits.
        broadcast: Tokens among which a credit (N, D) is distributed: "all" as in the paper, or only the "class" token.
    """

    def __init__(
        self,
        patch_embed: nn.Conv2d,
        cls_token: nn.Parameter,
        pos_embed: nn.Parameter,
        blocks: list[nn.Module],
        out_ln: nn.Module,
        out_head: nn.Module,
        broadcast: str,
    ):
        super().__init__(None, blocks, out_ln, out_head, pool=class_token)
        self.patch_embed = patch_embed
        self.cls_token = cls_token
        self.pos_embed = pos_embed
        self.broadcast = broadcast

    def embed(self, x: Tensor) -> Tensor:
        """Return h_0 (N, 1 + patches, D) for images (N, C, H, W).

        The first token is the class token, and the patches follow row by row.
        """
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2)  # (N, patches, D)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1) + self.pos_embed

    def spread(self, credit: Tensor, state: Tensor) -> Tensor:
        """Return a credit (N, D) as a credit (N, T, D) for T tokens.

        With broadcast "all", each token receives c/T. With "class", the class token receives c and all other tokens receive zero.
        In both cases the sum over the tokens is c.
        """
        if self.broadcast == "all" or credit.dim() == state.dim():
            return super().spread(credit, state)
        return torch.cat([credit[:, None], torch.zeros_like(state[:, 1:])], dim=1)


class VitMini(Architecture):
    card = ArchitectureCard(
        name="vit_mini",
        version=2,  # published names and initial distributions
        line="patches → class token, positions → L pre-LN transformer blocks → LN → class token → Linear",
        options={
            "d_hidden": Option(128, "width D of the state of each token", least=1),
            "num_blocks": Option(4, "number of blocks L; 0 is the shallow control", least=0),
            "heads": Option(4, "number of attention heads in each block", least=1),
            "patch": Option(4, "height and width of a patch in pixels", least=1),
            "broadcast": Option(
                "all",
                "tokens that receive a credit with one row per sample: all tokens, or only the class token",
                choices=("all", "class"),
            ),
            **OPTIONS,
        },
        source="arXiv 2606.21126, ViT setting: published names, and torch's default initialisation of every layer",
        credit_options=("broadcast",),
        block_options=("heads", *BLOCK_OPTIONS),
    )

    def check(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...]) -> list[Problem]:
        """Return problems if `patch` does not divide the image size, or `heads` does not divide d_hidden.

        `patch` must divide both the height and the width of images (C, H, W).
        """
        _, height, image_width = image_shape
        width, heads, patch = int(options["d_hidden"]), int(options["heads"]), int(options["patch"])
        problems = []
        if height % patch or image_width % patch:
            text = f"expected a divisor of the image size {height}×{image_width}, found {patch}"
            problems.append(Problem(("patch",), text))
        if width % heads:
            problems.append(Problem(("heads",), f"expected a divisor of d_hidden {width}, found {heads}"))
        return problems

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        width, patch = int(options["d_hidden"]), int(options["patch"])
        channels, height, image_width = image_shape
        tokens = 1 + (height // patch) * (image_width // patch)
        embed = (channels * patch * patch + 1) * width + (1 + tokens) * width
        form = BlockForm.of(options)
        return embed + form.blocks * block_size(width, form) + form.norm_size(width) + (width + 1) * classes

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network with tokens (N, 1 + patches, d_hidden) as states.

        The first token is the class token, and the input of the head is the class token (N, d_hidden).
        """
        width, heads, patch = int(options["d_hidden"]), int(options["heads"]), int(options["patch"])
        form = BlockForm.of(options)
        channels, height, image_width = image_shape
        count = (height // patch) * (image_width // patch)
        # the embedding is drawn first, so the shallow control starts with the same embedding
        return VisionTransformer(
            patch_embed=patches(channels, width, patch, generator),
            cls_token=_positions(1, width, generator),
            pos_embed=_positions(1 + count, width, generator),
            blocks=[TransformerBranch(width, heads, generator, form) for _ in range(form.blocks)],
            out_ln=form.new_norm(width),
            out_head=linear(width, classes, generator),
            broadcast=str(options["broadcast"]),
        )


def class_token(tokens: Tensor) -> Tensor:
    """Return the class token (N, D) of tokens (N, T, D)."""
    return tokens[:, 0]


def _positions(count: int, width: int, generator: torch.Generator) -> nn.Parameter:
    """Return a parameter (1, count, D) from a normal distribution with standard deviation .02.

    trunc_normal_ cuts values at ±2, which is 100 standard deviations, so no value is cut. If it cut values at two standard
    deviations, the parameters would be 12 % smaller.
    """
    parameter = nn.Parameter(torch.empty(1, count, width))
    nn.init.trunc_normal_(parameter, std=POSITION_STD, a=-POSITION_BOUND, b=POSITION_BOUND, generator=generator)
    return parameter


PLUGIN = VitMini()
