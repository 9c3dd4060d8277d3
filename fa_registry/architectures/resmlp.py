"""resmlp: residual MLP with a norm before or after each branch, the main architecture of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._block_form import BLOCK_OPTIONS, OPTIONS, BlockForm, scaled
from fa_registry.architectures._layers import ACTIVATIONS, INIT, linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.records import Option, Scalar


class ResidualBranch(nn.Module):
    """Branch f(h) = s w2 φ(w1 LN(h)), or LN(h + s w2 φ(w1 h)) − h for a norm after the skip.

    φ is the activation. LN is the norm and s the scale of `form`. The initial w2 is N(0, w2_std²) with zero bias for every init,
    so h_L ≈ h_0 before training.
    """

    def __init__(
        self, width: int, w2_std: float, activation: str, init: str, generator: torch.Generator, form: BlockForm
    ):
        super().__init__()
        self.stream = "ln" if form.place == "post" else ""
        self.scale, self.dropout = form.new_scale(), form.new_dropout()
        self.ln = form.new_norm(width)
        self.w1 = linear(width, width, generator, init=init)
        self.w2 = linear(width, width, generator)
        with torch.no_grad():
            self.w2.weight.normal_(0.0, w2_std, generator=generator)
            self.w2.bias.zero_()
        self.activation = ACTIVATIONS[activation]()

    def forward(self, state: Tensor) -> Tensor:
        if self.stream:
            return self.ln(state + self._layers(state)) - state
        return self._layers(self.ln(state))

    def _layers(self, state: Tensor) -> Tensor:
        return scaled(self.scale, self.w2(self.activation(self.w1(state))), self.dropout)


class ResMLP(Architecture):
    card = ArchitectureCard(
        name="resmlp",
        line="Linear → L pre-LN residual blocks (LN → Linear → GELU → Linear) → LN → Linear",
        options={
            "d_hidden": Option(256, "width D of the residual stream", least=1),
            "num_blocks": Option(4, "number of blocks L; 0 is the shallow control", least=0),
            "terminal_ln": Option(True, "whether a LayerNorm precedes the head"),
            "residual": Option(True, "whether blocks have skip connections; if you choose false, set w2_std to 0.5"),
            "w2_std": Option(0.01, "initial standard deviation of the second weight matrix of each block", least=0),
            **OPTIONS,
            "activation": Option("gelu", "activation of each block", choices=tuple(ACTIVATIONS), omit_default=True),
            "init": INIT,
        },
        source="arXiv 2606.21126, main setting",
        block_options=("residual", "w2_std", "activation", *BLOCK_OPTIONS),
    )

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        width, inputs = int(options["d_hidden"]), math.prod(image_shape)
        form = BlockForm.of(options)
        block = 2 * width * (width + 1) + form.norm_size(width) + form.scale_size
        norm = form.norm_size(width) if options["terminal_ln"] else 0
        return (inputs + 1) * width + int(options["num_blocks"]) * block + norm + (width + 1) * classes

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network with states (N, d_hidden). It has skips if the option `residual` is True.

        The embedding is initialised first, so networks with the same seed have the same embedding at every depth.
        """
        width, form, init = int(options["d_hidden"]), BlockForm.of(options), str(options["init"])
        of_a_branch = width, float(options["w2_std"]), str(options["activation"]), init
        return Network(
            # one layer that flattens: its weight is `embed.weight` in the state dict, as in the published checkpoints
            embed=linear(math.prod(image_shape), width, generator, flatten=True, init=init),
            blocks=[ResidualBranch(*of_a_branch, generator, form) for _ in range(form.blocks)],
            out_ln=form.new_norm(width) if options["terminal_ln"] else None,
            out_head=linear(width, classes, generator, init=init),
            residual=bool(options["residual"]),
        )


PLUGIN = ResMLP()
