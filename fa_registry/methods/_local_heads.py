"""Local heads, one linear classifier per site, and backpropagation with them (`deep_supervision`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods.base import CreditInputs, LearnsFeedbackByLoss, NetworkShape
from fa_registry.methods.bp import Backpropagation
from fa_registry.records import Scalar
from fa_registry.token_axes import mean_over_positions


class LocalHeads(nn.Module):
    """The matrices M_0..M_L of the local heads, M_l (C, D_l), without biases.

    The parameters have the names M_00, M_01, …, one per site. Their initial entries are U(±1/√D_l).
    """

    def __init__(self, shape: NetworkShape, generator: torch.Generator):
        super().__init__()
        for site, width in enumerate(shape.sites):
            weight = torch.empty(shape.classes, width)
            nn.init.uniform_(weight, -(width**-0.5), width**-0.5, generator=generator)
            self.register_parameter(f"M_{site:02d}", nn.Parameter(weight))

    def matrix(self, site: int) -> Tensor:
        """Return M_l of site l = `site`, (C, D_l)."""
        return getattr(self, f"M_{site:02d}")

    def logits(self, site: int, state: Tensor, by_position: bool) -> Tensor:
        """Compute the scores of a head, M_l h_l.

        Args:
            site: l, 0..L.
            state: h_l, (N, D_l), (N, T, D_l) or (N, D_l, H, W).
            by_position: whether the task has one target per position. If not, the head reads the mean over positions.

        Returns:
            (N, T, C) if `by_position`, else (N, C).
        """
        return (state if by_position else mean_over_positions(state)) @ self.matrix(site).T

    def errors(self, inputs: CreditInputs) -> list[Tensor]:
        """Compute e_l = ∂ℓ_l/∂(M_l h_l) of every site 0..L, with the shape of the logits.

        The errors belong to the sum over samples, without the factor 1/N.
        """
        logits = (self.logits(site, state, inputs.by_position) for site, state in enumerate(inputs.hidden))
        return [inputs.errors_of(scores) for scores in logits]

    def loss(self, inputs: CreditInputs) -> Tensor:
        """Compute Σ_l mean_i ℓ_l, a scalar, where ℓ_l is the loss of the task for the logits of head l.

        Gradients reach the matrices, and the states if `inputs.hidden` are on a graph.
        """
        losses = [
            inputs.losses_of(self.logits(site, state, inputs.by_position)) for site, state in enumerate(inputs.hidden)
        ]
        return torch.stack(losses).sum(dim=0).mean()


class DeepSupervision(Backpropagation, LearnsFeedbackByLoss):
    """Backpropagation of the loss mean_i ℓ_i + Σ_l mean_i ℓ_l of the output and of the local heads.

    The heads M_0..M_L and their initial entries are those of mono_forward. Unlike there, the gradient of every ℓ_l reaches all
    weights below site l. The credit that metrics see is g_l, the gradient of the loss of the output. Source: Lee, Xie, Gallagher,
    Zhang & Tu 2015, Deeply-supervised nets, AISTATS, with linear heads and equal weights of all losses.
    """

    card = dataclasses.replace(
        Backpropagation.card,
        feedback="M_0..M_L, M_l (C, D_l) with initial entries U(±1/√D_l); learned",
        has_feedback=True,
        learned=True,
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> LocalHeads:
        return LocalHeads(shape, generator)

    def feedback_loss(self, feedback: LocalHeads, inputs: CreditInputs) -> Tensor:
        """Compute Σ_l mean_i ℓ_l. If the states are on a graph, its gradient also reaches the network."""
        return feedback.loss(inputs)
