"""student_net: the student network of the synthetic teacher–student task.

The option α of the network sets how non-linear the network is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._layers import linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.records import Option, Scalar


class StudentBranch(nn.Module):
    """Branch f(h) = w2 φ_α(w1 h) with φ_α(z) = (1 − α) z + α tanh z.

    The initial w2 is N(0, .01²) with zero bias, as in resmlp.
    """

    def __init__(self, width: int, alpha: float, generator: torch.Generator):
        super().__init__()
        self.alpha = alpha
        self.w1 = linear(width, width, generator)
        self.w2 = linear(width, width, generator)
        with torch.no_grad():
            self.w2.weight.normal_(0.0, 0.01, generator=generator)
            self.w2.bias.zero_()

    def forward(self, state: Tensor) -> Tensor:
        inner = self.w1(state)
        return self.w2((1 - self.alpha) * inner + self.alpha * inner.tanh())


class StudentNet(Architecture):
    card = ArchitectureCard(
        name="student_net",
        line="Linear → L residual blocks (Linear → (1 − α) z + α tanh z → Linear) → Linear, without normalisation; linear at α = 0",
        options={
            "d_hidden": Option(128, "width D of the residual stream", least=1),
            "num_blocks": Option(4, "number of blocks L; 0 is the shallow control", least=0),
            "alpha": Option(1.0, "α, the weight of tanh in the activation", least=0),
        },
        source="arXiv 2606.21126, synthetic task: D = 128 and φ_α are published, and the other layers of the block are unpublished",
    )

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        width, inputs = int(options["d_hidden"]), math.prod(image_shape)
        blocks = int(options["num_blocks"]) * 2 * width * (width + 1)
        return (inputs + 1) * width + blocks + (width + 1) * classes

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network with states (N, d_hidden), with skips and without normalisation.

        At α = 0 the network is linear in its input.
        """
        width = int(options["d_hidden"])
        return Network(
            embed=linear(math.prod(image_shape), width, generator, flatten=True),
            blocks=[
                StudentBranch(width, float(options["alpha"]), generator) for _ in range(int(options["num_blocks"]))
            ],
            out_ln=None,
            out_head=linear(width, classes, generator),
        )


PLUGIN = StudentNet()
