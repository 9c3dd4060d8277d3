"""Method mono_forward: every block learns by the cross entropy of a linear classifier on its output."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._local_heads import LocalHeads
from fa_registry.methods.base import (
    ALL_TASKS,
    CreditInputs,
    LearnsFeedbackByLoss,
    Method,
    MethodCard,
    NetworkShape,
)
from fa_registry.records import Scalar

SOURCE = "arXiv 2501.09238"


class MonoForward(Method, LearnsFeedbackByLoss):
    card = MethodCard(
        name="mono_forward",
        rule="c_l is the gradient of the local cross entropy of the scores M_l h_l, and M_l learns by the same cross entropy",
        citation="Gong, Li & Abdulla 2025",
        bibtex="""@article{gong2025mono,
  title={Mono-Forward: backpropagation-free algorithm for efficient neural network training harnessing local errors},
  author={Gong, James and Li, Bruce and Abdulla, Waleed},
  journal={arXiv preprint arXiv:2501.09238}, year={2025}
}""",
        equations="G_l = M_l h_l, p_l = softmax(G_l), ℓ_l = −log p_l[y]; c_l = ∂ℓ_l/∂h_l = M_lᵀ (p_l − onehot(y)); "
        "M_0..M_L minimise Σ_l mean_i ℓ_l with constant h_l",
        deviations=(
            "a head reads the residual stream after block l, not the activations of one layer; on networks without skips "
            "(mlp), the stream is these activations",
            "the embedding is trained as a separate layer, with the matrix M_0. If the embedding has no weights (mlp), M_0 "
            "learns but trains nothing",
            "the head of the network predicts. It learns from the exact cross entropy and takes the place of the last classifier. "
            "The source predicts with the scores of the last layer, or with the sum of the scores of all layers",
            "M_l learns with the optimiser, learning rate and weight decay of the network; its initial entries are U(±1/√D_l)",
            "M_l has one column per feature. For an image with positions (maps, patches), it reads the mean over positions, so its "
            "size does not depend on the image; in the source, it has one column per neuron of the layer",
            "a step updates all blocks after the forward pass of the complete network: the credit is local, but not the time of an "
            "update",
            "tasks that the source does not treat: for tokens, M_l gives scores at every position, and ℓ_l is the sum over the "
            "positions that count; for a regression, ℓ_l is half the squared error of M_l h_l",
        ),
        architectures=("any",),
        tasks=ALL_TASKS,
        gamma_reference="informational",
        exact_sites="none",
        feedback="M_0..M_L, M_l (C, D_l) with initial entries U(±1/√D_l); learned",
        # feedback_learns needs a loss that can fall by a tenth: a linear head cannot fit random labels from pooled maps
        properties=("credit_ignores_blocks_above",),
        learned=True,
        # at site L of a network whose head reads h_L, M_L and the head learn the same function
        may_reach_bp=True,
        local_heads=True,
        credit_scale_source=f"{SOURCE}: the credit is that of a cross entropy and is not normalised; this package applies ε to "
        "one sample's credit",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return LocalHeads(shape, generator)

    def credits(self, feedback: LocalHeads, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = (p_l − onehot(y)) M_l, (N, D_l).

        If the task has one target per position, the shape is (N, T, D_l).

        Raises:
            UsageError: the labels do not have the shape that the task needs.
        """
        return [error @ feedback.matrix(site) for site, error in enumerate(feedback.errors(inputs))]

    def feedback_loss(self, feedback: LocalHeads, inputs: CreditInputs) -> Tensor:
        """Compute Σ_l mean_i ℓ_l at the states of this step, which are constants."""
        return feedback.loss(inputs)


PLUGIN = MonoForward()
