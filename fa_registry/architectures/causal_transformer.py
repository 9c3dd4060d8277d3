"""causal_transformer: a pre-LN decoder for token prediction.

The states are (N, T, D), and the logits are (N, T, V).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.architectures._block_form import BLOCK_OPTIONS, OPTIONS, BlockForm
from fa_registry.architectures._layers import affine, linear
from fa_registry.architectures.base import TOKENS, Architecture, ArchitectureCard, Network
from fa_registry.architectures.vit_mini import TransformerBranch, block_size
from fa_registry.errors import Problem
from fa_registry.records import Option, Scalar


class TokenEmbedding(nn.Module):
    """Sum of a token embedding and a position embedding: (N, T) → (N, T, D).

    Attributes:
        token: Embedding with weight (V, D).
        position: Position embedding (1, T, D).
    """

    def __init__(self, token: nn.Embedding, position: nn.Parameter):
        super().__init__()
        self.token, self.position = token, position

    def forward(self, x: Tensor) -> Tensor:
        return self.token(x) + self.position[:, : x.shape[1]]


class TiedHead(nn.Module):
    """Head that uses the weight (V, D) of the token embedding, so a step changes both.

    Attributes:
        backward_weight: Matrix (V, D) that replaces the weight in the backward pass, or None.
    """

    backward_weight: Tensor | None = None

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(len(weight)))

    def forward(self, x: Tensor) -> Tensor:
        return affine(x, self.weight, self.bias, self.backward_weight)


class CausalTransformer(Architecture):
    card = ArchitectureCard(
        name="causal_transformer",
        line="token and position embedding → L causal pre-LN transformer blocks → LN → Linear, for token prediction",
        options={
            "d_hidden": Option(128, "width D of the state at each position", least=1),
            "num_blocks": Option(4, "number of blocks L; 0 is the shallow control", least=0),
            "heads": Option(4, "number of attention heads in each block", least=1),
            "tied": Option(
                False,
                "whether the weight of the token embedding is also the weight of the head; if so, the B of dfa replaces a "
                "matrix that also embeds tokens",
            ),
            **OPTIONS,
        },
        source="a pre-LN decoder as in Radford et al. 2019; block as in vit_mini, and torch's default initialisation of every "
        "layer: embeddings N(0, 1)",
        block_options=("heads", *BLOCK_OPTIONS),
        inputs=TOKENS,
    )

    def check(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...]) -> list[Problem]:
        """Return problems if `heads` does not divide d_hidden, or if an input is not one sequence of tokens."""
        width, heads = int(options["d_hidden"]), int(options["heads"])
        problems = (
            [Problem(("heads",), f"expected a divisor of d_hidden {width}, found {heads}")] if width % heads else []
        )
        if len(image_shape) != 1:
            text = f"expected a data set whose inputs are sequences of tokens (T,), found inputs {image_shape}"
            problems.append(Problem((), text))
        return problems

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        width = int(options["d_hidden"])
        form = BlockForm.of(options)
        head = classes if options["tied"] else (width + 1) * classes
        blocks = form.blocks * block_size(width, form)
        return (classes + image_shape[0]) * width + blocks + form.norm_size(width) + head

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network with states (N, T, d_hidden) for tokens (N, T).

        The vocabulary has `classes` tokens.
        """
        width, heads, form = int(options["d_hidden"]), int(options["heads"]), BlockForm.of(options)
        # the embedding is drawn first, so the shallow control starts with the same embedding
        token = nn.Embedding(classes, width, _weight=torch.randn(classes, width, generator=generator))
        embed = TokenEmbedding(token, nn.Parameter(torch.randn(1, image_shape[0], width, generator=generator)))
        blocks = [TransformerBranch(width, heads, generator, form, causal=True) for _ in range(form.blocks)]
        head = TiedHead(token.weight) if options["tied"] else linear(width, classes, generator)
        return Network(embed, blocks, form.new_norm(width), head)


PLUGIN = CausalTransformer()
