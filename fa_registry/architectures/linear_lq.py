"""linear_lq: a linear system with process noise. Its exact costate is a product of matrices.

The network is a test case for credits, and is not meant to learn a task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._layers import linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, ExactCostate, Network, Noisy
from fa_registry.records import Option, Scalar
from fa_registry.tasks import Task, task_of


class LinearStep(Noisy):
    """Block f(h) = A h + σ ξ with standard normal noise ξ.

    The noise comes from the generator that the training loop sets. Without a generator, ξ = 0.
    """

    def __init__(self, width: int, spread: float, sigma: float, generator: torch.Generator):
        super().__init__()
        self.a = linear(width, width, generator)
        self.sigma = sigma
        with torch.no_grad():
            self.a.weight.normal_(0.0, spread, generator=generator)
            self.a.bias.zero_()

    def forward(self, state: Tensor) -> Tensor:
        return self.a(state) + self.sigma * self.noise_like(state)


class LinearSystem(Network, ExactCostate):
    """Linear network h_l = h_{l-1} + A_l h_{l-1} + σ ξ_l with the logits z = C h_L."""

    def costates(self, x: Tensor, y: Tensor, task: Task | None = None) -> list[Tensor]:
        """Return λ_L = e C and λ_{l-1} = λ_l (I + A_l), each (N, D), for l = 0..L and σ = 0.

        The error e has one row per sample. A_l is multiplied from the right and is not transposed, because a layer stores A_l as
        (out, in). tests/architectures/test_base.py compares the result with autograd, for classes and for values.
        """
        state = self.embed(x)
        for block in self.blocks:
            state = state + state @ block.a.weight.T + block.a.bias
        error = (task or task_of(y)).output_error(state @ self.out_head.weight.T + self.out_head.bias, y)
        costates = [error @ self.out_head.weight]  # (batch, hidden)
        for block in reversed(self.blocks):
            costates.insert(0, costates[0] + costates[0] @ block.a.weight)
        return costates


class LinearLQ(Architecture):
    card = ArchitectureCard(
        name="linear_lq",
        line="h_l = h_{l-1} + A_l h_{l-1} + σ ξ, z = C h_L; every h_l has the width of the input; A_l and C are "
        "trained only with the option `learn`",
        options={
            "num_blocks": Option(12, "number of linear blocks L", "arXiv 2606.21126, toy LQ task", least=0),
            "sigma": Option(0.03, "standard deviation σ of the process noise", "arXiv 2606.21126", least=0),
            "spread": Option(
                0.5,
                "spread of the initial weights: A_l ~ N(0, spread²/(D·L))",
                "unpublished; value of this package",
                least=0,
            ),
            "learn": Option(False, "whether the weights A_l and C are trained; if not, only the feedback is trained"),
        },
        source="arXiv 2606.21126, toy linear-quadratic task; the distributions of A_l, C and the targets are unpublished",
    )

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        width = math.prod(image_shape)
        return int(options["num_blocks"]) * width * (width + 1) + (width + 1) * classes

    def trains(self, options: Mapping[str, Scalar]) -> bool:
        return bool(options["learn"])

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a linear network whose stream is the flattened input (N, D) with D = prod(image_shape).

        A_l ~ N(0, spread²/(D·L)) and C ~ N(0, 1/D). If the option `learn` is False, the weights of the network are constant and
        only the feedback of the method is trained.
        """
        width, count = math.prod(image_shape), int(options["num_blocks"])
        spread = float(options["spread"]) / math.sqrt(width * max(count, 1))
        head = linear(width, classes, generator)
        with torch.no_grad():
            head.weight.normal_(0.0, width**-0.5, generator=generator)
            head.bias.zero_()
        blocks = [LinearStep(width, spread, float(options["sigma"]), generator) for _ in range(count)]
        network = LinearSystem(nn.Flatten(), blocks, out_ln=None, out_head=head)
        return network.requires_grad_(self.trains(options))


PLUGIN = LinearLQ()
