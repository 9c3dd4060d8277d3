"""Method fa: block feedback alignment.

A fixed random matrix replaces the Jacobian of each block, including its skip.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods.base import ALL_TASKS, CreditInputs, FixedMatrices, Method, MethodCard, NetworkShape
from fa_registry.records import Scalar
from fa_registry.token_axes import sum_over_positions

LILLICRAP_2016 = """@article{lillicrap2016random,
  title={Random synaptic feedback weights support error backpropagation for deep learning},
  author={Lillicrap, Timothy P. and Cownden, Daniel and Tweed, Douglas B. and Akerman, Colin J.},
  journal={Nature Communications}, volume={7}, pages={13276}, year={2016}
}"""


class BlockFeedbackAlignment(Method):
    card = MethodCard(
        name="fa",
        rule="c_L = g_L exactly (for maps: the gradient of their average); c_{l-1} = c_l B_l, B_l fixed and random",
        citation="Lillicrap, Cownden, Tweed & Akerman 2016",
        bibtex=LILLICRAP_2016,
        equations="c_{l-1} = c_l B_l, B_l (D_l, D_{l-1}) with entries N(0, 1/D_l)",
        deviations=(
            "one matrix replaces a block's whole Jacobian I + ∂f_l/∂h, including the identity of the skip; the source "
            "replaces the transpose of every weight, as the method weight_fa does",
            "Γ compares the credit with the gradient at the same site; the published code uses the gradient at the previous site",
            "tokens: below site L, a credit has one row per sample, which is the credit of the average over positions (c_L "
            "summed over positions)",
            "feature maps: c_L is the gradient with respect to the average over positions, even if a third-party head reads "
            "the maps without averaging",
        ),
        architectures=("any",),
        tasks=ALL_TASKS,
        gamma_reference="bp",
        exact_sites="last",
        feedback="B_l (D, D) with independent entries N(0, 1/D), fixed",
        properties=("feedback_fixed", "block_jacobian_gives_bp"),
        credit_scale="mean",
        # version 2: ε has the scale of the source; version 3: for maps, c_L is the gradient of their average, one row per sample
        version=3,
        credit_scale_source="the code of arXiv 2606.21126 computes g_L from the mean cross entropy, and then normalises the "
        "credits",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Draw the matrices B_l (D_l, D_{l−1}) ~ N(0, 1/D_l) for blocks 1..L.

        With this variance, the backward pass preserves the expected norm of an error.
        """
        sizes = zip(shape.sites[1:], shape.sites[:-1], strict=True)
        return FixedMatrices([torch.randn(above, below, generator=generator) / above**0.5 for above, below in sizes])

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_L = g_L and, for lower sites, c_{l−1} = c_l B_l, (N, D_{l−1}).

        For maps (N, D, H, W), c_L is the gradient of the average over positions, (N, D). The head of small_resnet reads the
        average over P positions, so the gradient at each position is 1/P of the gradient of the average. A c_L in the shape of the
        map would have a root mean square that is P times smaller, and ε in norm(c) would be P times too large.
        """
        # B_l maps the credit at the output of block l to the credit at its input: iteration `block` computes the site below.
        # With an index error of one, the credit would differ from dfa with the composed matrices (tests/methods/test_fa.py).
        # (batch, hidden), with or without positions; (batch, positions, hidden) if every position has a target
        row = inputs.output_gradient if inputs.by_position else sum_over_positions(inputs.output_gradient)
        credits = [row if inputs.output_gradient.dim() == 4 else inputs.output_gradient]
        for block in range(len(inputs.hidden) - 1, 0, -1):
            row = row @ feedback.matrix(block)  # (batch, above) -> (batch, below)
            credits.append(row)
        return credits[::-1]


PLUGIN = BlockFeedbackAlignment()
