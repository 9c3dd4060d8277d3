"""Options of resmlp, vit_mini and causal_transformer for the norm and the scale of a branch.

With g for the layers of a block and s for its scale, the block is

    h_l = h_{l-1} + s g(norm(h_{l-1}))  (norm_place=pre)    or    h_l = norm(h_{l-1} + s g(h_{l-1}))  (norm_place=post).

A post-norm block returns the branch f_l = norm(h_{l-1} + s g(h_{l-1})) − h_{l-1}, so h_l = h_{l-1} + f_l and ∂ℓ/∂f_l = ∂ℓ/∂h_l
stay exact. Its attribute `stream` names the norm. In training steps, dropout sets a share p of the entries of each g to zero and
divides the others by 1 − p. Each evaluation of a block draws new entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Noisy
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
    "dropout": Option(
        0.0,
        "share of the outputs of each branch that a training step sets to zero; measurements use all outputs",
        "Srivastava et al. 2014; on branches: Vaswani et al. 2017",
        least=0,
        below=1,
        omit_default=True,
    ),
}
BLOCK_OPTIONS = ("norm_place", "branch_scale", "dropout")


class Dropout(Noisy):
    """Dropout that draws from the run's own generator, so a resumed or replayed run has the same masks.

    Without a generator, as in measurements, all entries are kept.
    """

    def __init__(self, share: float):
        super().__init__()
        self.share = share

    def forward(self, branch: Tensor) -> Tensor:
        if self.noise is None:
            return branch
        draws = torch.rand(branch.shape, generator=self.noise, device=branch.device)
        return branch * ((draws >= self.share) / (1 - self.share)).to(branch.dtype)


@dataclass(frozen=True)
class BlockForm:
    """Norm and scale of every block of a network.

    Attributes:
        norm: "layer" or "rms".
        place: "pre" or "post".
        scale: "one", "depth" or "learned".
        blocks: Number of blocks L.
        dropout: Share p of the outputs of a branch that a training step sets to zero.
    """

    norm: str = "layer"
    place: str = "pre"
    scale: str = "one"
    blocks: int = 1
    dropout: float = 0.0

    @classmethod
    def of(cls, options: Mapping[str, Scalar]) -> BlockForm:
        """Read the form from the values of all options of an architecture."""
        norm, place, scale = (str(options[name]) for name in ("norm", "norm_place", "branch_scale"))
        return cls(norm, place, scale, int(options["num_blocks"]), float(options["dropout"]))

    def new_norm(self, width: int) -> nn.Module:
        """Return a norm over the features of states (…, width)."""
        return nn.LayerNorm(width) if self.norm == "layer" else nn.RMSNorm(width, eps=NORM_EPS)

    def new_scale(self) -> nn.Parameter | float | None:
        """Return the scale of a branch: None for 1, the number 1/√L, or a parameter (1,) that is 0."""
        if self.scale == "learned":
            return nn.Parameter(torch.zeros(1))
        return self.blocks**-0.5 if self.scale == "depth" else None

    def new_dropout(self) -> Dropout | None:
        """Return the dropout of one branch, or None without dropout."""
        return Dropout(self.dropout) if self.dropout else None

    def norm_size(self, width: int) -> int:
        """Return the number of weights of one norm."""
        return width * (2 if self.norm == "layer" else 1)

    @property
    def scale_size(self) -> int:
        """Number of weights of the scale of one block."""
        return int(self.scale == "learned")


def scaled(scale: nn.Parameter | float | None, branch: Tensor, dropout: Dropout | None = None) -> Tensor:
    """Return s g for the output g of a block's layers, after dropout; None is the scale 1."""
    branch = branch if dropout is None else dropout(branch)
    return branch if scale is None else scale * branch
