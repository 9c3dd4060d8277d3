"""Options of resmlp, vit_mini and causal_transformer for the norm and the scale of a branch.

With g for the layers of a block and s for its scale, the block is

    h_l = h_{l-1} + s g(norm(h_{l-1}))  (norm_place=pre)    or    h_l = norm(h_{l-1} + s g(h_{l-1}))  (norm_place=post).

A post-norm block returns the branch f_l = norm(h_{l-1} + s g(h_{l-1})) − h_{l-1}, so h_l = h_{l-1} + f_l and ∂ℓ/∂f_l = ∂ℓ/∂h_l
stay exact. Its attribute `stream` names the norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fa_registry.records import Option, Scalar

NORM_EPS = 1e-5  # that of torch's LayerNorm

OPTIONS: Mapping[str, Option] = {
    "norm": Option(
        "layer",
        "norm of the blocks and of the head's input: LayerNorm, or RMSNorm, which has no mean and no bias",
        "RMSNorm: Zhang & Sennrich 2019",
        choices=("layer", "rms"),
        omit_default=True,
    ),
    "norm_place": Option(
        "pre",
        "pre: the norm is the first layer of a branch; post: it follows the sum of state and branch, so the branch of the "
        "contract, and the penalty on it, is h_l − h_{l-1}",
        "post: Vaswani et al. 2017, whose network has no norm before the head",
        choices=("pre", "post"),
        needs="residual",
        omit_default=True,
    ),
    "branch_scale": Option(
        "one",
        "factor of each branch before it is added: 1; depth: 1/√L; learned: one scalar per block, which starts at 0, so "
        "frozen blocks compute nothing",
        "depth: Hayou et al. 2021; learned: ReZero, Bachlechner et al. 2021, and SkipInit, De & Smith 2020",
        choices=("one", "depth", "learned"),
        needs="residual",
        omit_default=True,
    ),
}
BLOCK_OPTIONS = ("norm_place", "branch_scale")


@dataclass(frozen=True)
class BlockForm:
    """Norm and scale of every block of a network.

    Attributes:
        norm: "layer" or "rms".
        place: "pre" or "post".
        scale: "one", "depth" or "learned".
        blocks: Number of blocks L.
    """

    norm: str = "layer"
    place: str = "pre"
    scale: str = "one"
    blocks: int = 1

    @classmethod
    def of(cls, options: Mapping[str, Scalar]) -> BlockForm:
        """Read the form from the values of all options of an architecture."""
        norm, place, scale = (str(options[name]) for name in OPTIONS)
        return cls(norm, place, scale, int(options["num_blocks"]))

    def new_norm(self, width: int) -> nn.Module:
        """Return a norm over the features of states (…, width)."""
        return nn.LayerNorm(width) if self.norm == "layer" else nn.RMSNorm(width, eps=NORM_EPS)

    def new_scale(self) -> nn.Parameter | float | None:
        """Return the scale of a branch: None for 1, the number 1/√L, or a parameter (1,) that is 0."""
        if self.scale == "learned":
            return nn.Parameter(torch.zeros(1))
        return self.blocks**-0.5 if self.scale == "depth" else None

    def norm_size(self, width: int) -> int:
        """Return the number of weights of one norm."""
        return width * (2 if self.norm == "layer" else 1)

    @property
    def scale_size(self) -> int:
        """Number of weights of the scale of one block."""
        return int(self.scale == "learned")


def scaled(scale: nn.Parameter | float | None, branch: Tensor) -> Tensor:
    """Return s g for the output g of a block's layers; None is the scale 1."""
    return branch if scale is None else scale * branch
