"""Backpropagation with local heads, which trains the control `deep_supervision`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from fa_registry.methods._local_heads import LocalHeads
from fa_registry.methods.base import CreditInputs, LearnsFeedbackByLoss, NetworkShape
from fa_registry.methods.bp import Backpropagation
from fa_registry.records import Scalar


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
