"""Method dkp: direct Kolen–Pollack.

Direct feedback alignment whose matrices learn from the states and the output error, by the transpose of the head's update.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods.base import (
    ALL_TASKS,
    CreditInputs,
    FixedMatrices,
    LearnsFeedbackByLoss,
    Method,
    MethodCard,
    NetworkShape,
)
from fa_registry.methods.dfa import direct_credits, direct_matrices
from fa_registry.records import Scalar
from fa_registry.token_axes import mean_over_positions


class LearnedMatrices(FixedMatrices):
    """Matrices with the names and initial values of dfa, which are parameters."""

    def __init__(self, drawn: FixedMatrices):
        super().__init__([])
        for name, matrix in drawn.named_buffers():
            self.register_parameter(name, nn.Parameter(matrix))


class DirectKolenPollack(Method, LearnsFeedbackByLoss):
    card = MethodCard(
        name="dkp",
        rule="c_l = e B_lᵀ as in dfa; B_l receives h_lᵀ e, with the learning rate and the weight decay of the weights",
        citation="Webster, Choi & Ahn 2020",
        bibtex="""@misc{webster2020learning,
  title={Learning the connections in direct feedback alignment},
  author={Webster, Matthew Bailey and Choi, Jonghyun and Ahn, Changwook},
  howpublished={OpenReview, submission to ICLR 2021}, year={2020}
}""",
        equations="c_l = e B_lᵀ, B_l (D_l, C); B_l ← (1 − ηλ) B_l − η u(h_lᵀ e/N). The head's W (C, D_L) with z = h_L Wᵀ receives "
        "u(eᵀ h_L/N), so W − B_Lᵀ ← (1 − ηλ)(W − B_Lᵀ) under SGD",
        deviations=(
            "the credit acts on the residual stream after block l, not on the activation of one layer",
            "the embedding shares B_1 with block 1, as in dfa; if the widths of sites 0 and 1 differ (mlp), the embedding has a "
            "separate matrix B_0",
            "u is the step of the recipe's optimiser (AdamW), with the same rate and decay for weights and feedback. The "
            "published code trains the weights by SGD with momentum and the feedback by Adam at a fifth of the rate, both with a "
            "decay of 1e-6",
            "B_l starts at N(0, 1/C), as in dfa; the published code draws Kaiming-uniform",
            "if a LayerNorm precedes the head (resmlp, transformers), the head learns from the normalised state, but B_L from h_L, "
            "so W − B_Lᵀ does not decay exactly",
            "tokens and maps: B_l (D_l, C) learns from the average of h_l over the positions; the source has one matrix for all "
            "channels and positions. If every position has a target, B_l learns from every position",
        ),
        architectures=("any",),
        tasks=ALL_TASKS,
        gamma_reference="bp",
        exact_sites="none",
        feedback="B_l (D, C), initially independent entries N(0, 1/C); learned",
        properties=("direct_kolen_pollack_converges", "output_jacobian_gives_bp"),
        learned=True,
        may_reach_bp=True,
        credit_scale_source="as dfa: the error is softmax − onehot, without 1/N; the published code has the error of the mean loss "
        "and does not normalise",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Draw the matrices B_l (D_l, C) ~ N(0, 1/C) of dfa, as parameters."""
        return LearnedMatrices(direct_matrices(shape, generator))

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = e B_lᵀ, (N, D_l). Site 0 uses B_1 if there is no B_00."""
        return direct_credits(feedback, inputs.error, inputs.hidden)

    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """Compute Σ_l <B_l, h_lᵀ e>/N over all matrices.

        The gradient with respect to B_l is h_lᵀ e/N. The gradient of the head's weight also has the factor 1/N.
        """
        rows = inputs.error.flatten(0, -2)  # (batch, classes), or (batch · positions, classes)
        products = []
        for name, matrix in feedback.named_parameters():
            state = inputs.hidden[int(name.removeprefix("B_"))]
            state = (state if inputs.by_position else mean_over_positions(state)).flatten(0, -2)  # (rows, hidden)
            products.append(((state @ matrix) * rows).sum())
        return sum(products) / len(inputs.error)


PLUGIN = DirectKolenPollack()
