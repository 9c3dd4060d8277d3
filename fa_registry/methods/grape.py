"""Method grape: gradient-aligned projected error.

The direct feedback matrices turn towards forward-mode estimates of the Jacobians. Rare anchor steps use the exact gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._forward_mode import SUPPORTED, UNSUPPORTED, jacobian_estimates
from fa_registry.methods.base import (
    ALL_TASKS,
    CreditInputs,
    HasAnchorSteps,
    HasFeedbackRule,
    Method,
    MethodCard,
    NetworkShape,
)
from fa_registry.methods.dfa import direct_credits, direct_matrices
from fa_registry.records import Option, Scalar

EPS = 1e-12  # keeps a column of zeros finite
NEVER = "never"


def unit_columns(matrix: Tensor) -> Tensor:
    """Divide every column of a matrix (D, C) by its norm."""
    return matrix / (torch.linalg.vector_norm(matrix, dim=0, keepdim=True) + EPS)


class GradientAlignedProjectedError(Method, HasFeedbackRule, HasAnchorSteps):
    card = MethodCard(
        name="grape",
        rule="c_l = e B_lᵀ as in dfa, where each step turns the columns of B_l towards a forward-mode estimate of the Jacobian",
        citation="Caillon, Fagnou, Delattre & Allauzen 2026",
        bibtex="""@inproceedings{caillon2026scaling,
  title={Scaling direct feedback learning with {J}acobian alignment guarantees},
  author={Caillon, Paul and Fagnou, Erwan and Delattre, Blaise and Allauzen, Alexandre},
  booktitle={International Conference on Learning Representations}, year={2026}
}""",
        equations="Ĵ_l = p_lᵀ d/N (D_l, C) with p_l ~ N(0, 1) and d = Σ_l p_l (∂z/∂h_l)ᵀ, a mean of N rank-1 estimates; "
        "ℓ(B_l) = 1 − mean_k cos(B_l[:, k], Ĵ_l[:, k]); B_l ← B_l − η_B ∂ℓ/∂B_l, then every column of B_l is divided by its norm; "
        "c_l = e B_lᵀ. Anchor step, every T epochs: c_l = g_l",
        deviations=(
            "re-implemented from the abstract and published notes on the paper; its text and code were not available here. Chosen "
            "here: η_B = 0.1, the start of B_l, one forward-mode product for all sites, and the order of the steps",
            "the credit acts on the residual stream after block l, not on the pre-activation of one layer",
            "the embedding shares B_1 with block 1, as in dfa; if the widths of sites 0 and 1 differ (mlp), its separate matrix "
            "B_0 stays at its first draw",
            "the source perturbs weights or activations, choosing those with fewer dimensions; here the states are always "
            "perturbed",
            "B_l is updated after the weights, so the credit of a step comes from the estimates of the steps before",
            "there is no anchor step by default. With the option `anchor_every` = T, the first batch of the epochs T, 2T, … (from "
            "0) is an anchor step: every site receives the exact gradient g_l, normalised as the credit of other steps. The source "
            "uses T = 1 for deep networks and takes a step of plain backpropagation",
            "attention is part of a block, so its weights learn from the credit of the block, without separate rules",
            "tokens and maps: without targets at every position, p_l is one vector per sample, added at every position; with such "
            "targets, Ĵ_l belongs to the outputs and the state of the same position",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="B_l (D, C), initially independent entries N(0, 1), every column divided by its norm; learned",
        properties=("forward_estimates_converge", "output_jacobian_gives_bp"),
        learned=True,
        may_reach_bp=True,
        anchor_steps="on the first batch of every such number of epochs, all sites are trained with the exact gradient, by a "
        "backward pass through all blocks; training with anchor steps is not free of backpropagation. Γ is that of the other steps",
        options={
            "feedback_rate": Option(0.1, "η_B, the step size on the alignment loss of B", "chosen here", above=0),
            "anchor_every": Option(
                NEVER,
                "T, number of epochs between two anchor steps, which train with the exact gradient",
                "chosen here; the source has no anchor steps for shallow networks, and T = 1 for deep ones",
                choices=(NEVER,),
                or_count=True,
            ),
        },
        credit_scale_source="as dfa: the error is softmax − onehot, without 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Draw the matrices B_l (D_l, C) of dfa, and normalise their columns. The attribute `rate` is η_B."""
        matrices = direct_matrices(shape, generator)
        for matrix in matrices.buffers():
            matrix.copy_(unit_columns(matrix))
        matrices.rate = float(options["feedback_rate"])
        return matrices

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = e B_lᵀ, (N, D_l). Site 0 uses B_1 if there is no B_00."""
        return direct_credits(feedback, inputs.error, inputs.hidden)

    def update_feedback(self, feedback: nn.Module, inputs: CreditInputs) -> None:
        """Make one gradient step on the alignment loss of B_1..B_L, and normalise their columns, in place.

        For unit vectors j and u = b/‖b‖, the gradient of cos(b, j) with respect to b is (j − cos(b, j) u)/‖b‖.
        """
        for block, estimate in enumerate(jacobian_estimates(inputs), start=1):
            matrix, target = feedback.matrix(block), unit_columns(estimate)  # (hidden, classes)
            norms, unit = torch.linalg.vector_norm(matrix, dim=0), unit_columns(matrix)
            slope = (target - (unit * target).sum(dim=0) * unit) / norms
            matrix.copy_(unit_columns(matrix + slope * (feedback.rate / matrix.shape[1])))

    def anchor_every(self, options: Mapping[str, Scalar]) -> int:
        return 0 if options["anchor_every"] == NEVER else int(options["anchor_every"])


PLUGIN = GradientAlignedProjectedError()
