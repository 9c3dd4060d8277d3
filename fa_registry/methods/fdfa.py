"""Method fdfa: forward direct feedback alignment.

The direct feedback matrices are a moving average of forward-mode estimates of the Jacobians of the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._forward_mode import SUPPORTED, UNSUPPORTED, jacobian_estimates
from fa_registry.methods.base import ALL_TASKS, CreditInputs, HasFeedbackRule, Method, MethodCard, NetworkShape
from fa_registry.methods.dfa import direct_credits, direct_matrices
from fa_registry.records import Option, Scalar

START = 0.01  # far below any Jacobian, so that the first estimates decide the direction of B


class ForwardDirectFeedbackAlignment(Method, HasFeedbackRule):
    card = MethodCard(
        name="fdfa",
        rule="c_l = e B_lᵀ as in dfa, where B_l is a moving average of the directional derivatives of the outputs along random "
        "perturbations of the states",
        citation="Bacho & Chu 2024",
        bibtex="""@article{bacho2024low,
  title={Low-variance forward gradients using direct feedback alignment and momentum},
  author={Bacho, Florian and Chu, Dominique},
  journal={Neural Networks}, volume={169}, pages={572--583}, year={2024}
}""",
        equations="p_l (N, D_l) ~ N(0, 1) at every site 1..L, d = Σ_l p_l (∂z/∂h_l)ᵀ (N, C) by one forward-mode product; "
        "B_l ← (1 − α) B_l + α p_lᵀ d/N, and E[p_lᵀ d/N] = mean_i (∂z_i/∂h_l)ᵀ; c_l = e B_lᵀ",
        deviations=(
            "the credit acts on the residual stream after block l, not on the activation of one layer",
            "the embedding shares B_1 with block 1, as in dfa; if the widths of sites 0 and 1 differ (mlp), its separate matrix "
            "B_0 stays at its first draw, because the source does not perturb the input",
            "α = 0.01, because a run on digits has a thousand steps. The published code minimises ½‖B_l − p_lᵀ d/N‖² by Adam at "
            "1e-4, the rate of the weights",
            "B_l starts at 0.01 times N(0, 1/C); in the published code, it starts at zero, so there would be no credit to measure",
            "B_l is updated after the weights: d belongs to the new weights, at the states of the step before",
            "tokens and maps: without targets at every position, p_l is one vector per sample, added at every position; with such "
            "targets, B_l is the average Jacobian of a position's outputs with respect to the state at the same position",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="B_l (D, C), initially 0.01 times independent entries N(0, 1/C); learned",
        properties=("forward_estimates_converge", "output_jacobian_gives_bp"),
        learned=True,
        may_reach_bp=True,
        options={
            "feedback_rate": Option(
                0.01,
                "α, the factor with which the new estimate is added to B at every step",
                "chosen here; the published code uses Adam at 1e-4",
                above=0,
            )
        },
        credit_scale_source="as dfa: the error is softmax − onehot, without 1/N; the published code has the error of the mean loss "
        "and does not normalise",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Draw the matrices B_l (D_l, C) of dfa, multiplied by 0.01. The attribute `rate` is α."""
        matrices = direct_matrices(shape, generator)
        for matrix in matrices.buffers():
            matrix.mul_(START)
        matrices.rate = float(options["feedback_rate"])
        return matrices

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = e B_lᵀ, (N, D_l). Site 0 uses B_1 if there is no B_00."""
        return direct_credits(feedback, inputs.error, inputs.hidden)

    def update_feedback(self, feedback: nn.Module, inputs: CreditInputs) -> None:
        """Update B_l ← (1 − α) B_l + α p_lᵀ d/N for the sites 1..L, in place."""
        for block, estimate in enumerate(jacobian_estimates(inputs), start=1):
            feedback.matrix(block).lerp_(estimate, feedback.rate)


PLUGIN = ForwardDirectFeedbackAlignment()
