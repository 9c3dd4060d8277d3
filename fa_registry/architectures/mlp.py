"""mlp: a multilayer perceptron without skips, the network of the classic papers.

The network 784-500-10 has the options d_hidden=500 and num_blocks=1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._layers import ACTIVATIONS, INIT, linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.records import Option, Scalar


class HiddenLayer(nn.Module):
    """Block f(h) = φ(w h + b) of a network without skips."""

    def __init__(self, features_in: int, features_out: int, activation: str, init: str, generator: torch.Generator):
        super().__init__()
        self.w = linear(features_in, features_out, generator, init=init)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, state: Tensor) -> Tensor:
        return self.activation(self.w(state))


class MLP(Architecture):
    card = ArchitectureCard(
        name="mlp",
        line="flatten → hidden layers (Linear → activation), one per block, without skips → Linear",
        options={
            "d_hidden": Option(256, "width of every hidden layer", least=1),
            "num_blocks": Option(2, "number of hidden layers L; 0 is the shallow control", least=0),
            "activation": Option("relu", "activation after every hidden layer", choices=tuple(ACTIVATIONS)),
            "init": INIT,
        },
        block_options=("activation",),
        source="Lillicrap et al. 2016; Nøkland 2016; Akrout et al. 2019",
    )

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        inputs, width, count = math.prod(image_shape), int(options["d_hidden"]), int(options["num_blocks"])
        first = (inputs + 1) * width if count else 0
        return first + max(count - 1, 0) * width * (width + 1) + ((width if count else inputs) + 1) * classes

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network without skips with states h_1..h_L of shape (N, d_hidden).

        The state h_0 is the flattened input (N, prod(image_shape)), so the embedding has no parameters.
        """
        inputs, width, count = math.prod(image_shape), int(options["d_hidden"]), int(options["num_blocks"])
        init = str(options["init"])
        sizes = [inputs] + [width] * count  # site 0 is the flattened input: the first hidden layer is block 1
        return Network(
            embed=nn.Flatten(),
            blocks=[
                HiddenLayer(below, above, str(options["activation"]), init, generator)
                for below, above in zip(sizes[:-1], sizes[1:], strict=True)
            ],
            out_ln=None,
            out_head=linear(sizes[-1], classes, generator, init=init),
            residual=False,
        )


PLUGIN = MLP()
