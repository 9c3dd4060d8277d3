"""Method state_bridge: a network predicts the last state from every state.

The credit is the gradient of the loss that the predicted state would have.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods import _bridge
from fa_registry.methods._bridge import SiteNet, all_sites, by_site
from fa_registry.methods.base import CreditInputs, LearnsFeedbackByLoss, Method, MethodCard, NetworkShape
from fa_registry.records import Scalar

LAYERS = 2
EPSILON = 1e-6


class StateBridge(Method, LearnsFeedbackByLoss):
    card = MethodCard(
        name="state_bridge",
        rule="G_ψ(h_l, t_l, s) predicts h_L; c_l is the gradient, with respect to h_l, of the loss of the predicted state",
        citation=_bridge.CITATION,
        bibtex=_bridge.BIBTEX,
        equations="c_l = ∂ℓ(head(G_ψ(h_l, t_l, s)), y)/∂h_l, t_l = l/L, s = sg(e) held constant; ψ minimises the mean over samples "
        "and sites of ‖G_ψ(h_l, t_l, s) − sg(h_L)‖² / (‖h_L‖² + ε)",
        deviations=(
            "re-implemented from its description, because no code of the source was available; the source specifies only the "
            "sizes of the hidden layers",
            "the embedding of t is sin and cos of t and of t/100; the input of the network is the row (h, embedding, s)",
            "G is a network without a skip from h_l, because on the toy LQ task an untrained G = h_l is already near the costate",
            "G is evaluated at site L too, as in the equation, so c_L is not g_L and the credit is exact at no site",
            _bridge.ONE_NET + "; G predicts the pooled h_L that the readout uses",
            "the loss is the mean over sites 0..L, ε = 1e-6; ψ learns with the network's optimiser, learning rate and weight decay",
        ),
        architectures=("any",),
        gamma_reference="bp",
        exact_sites="none",
        feedback="weights and biases of G_ψ ~ U(±1/√inputs), then learned together with the network",
        options={"conditioning": _bridge.conditioning_option("error", "arXiv 2606.21126: s = sg(e)")},
        properties=("feedback_learns",),
        learned=True,
        needs_autograd=True,
        may_reach_bp=True,
        credit_scale_source="arXiv 2606.21126's equation uses one sample's loss; no code was available to check this",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return SiteNet(
            max(shape.sites), shape.classes, str(options["conditioning"]), LAYERS, shape.sites[-1], generator
        )

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = ∂ℓ_i(readout(G_ψ(h_l, t_l, s_i)))/∂h_l, (N, D_l).

        One pass through G computes the (L+1)·N rows of all sites.
        """
        states, times, signal = all_sites(inputs, feedback.conditioning_signal(inputs))
        labels = torch.cat([inputs.labels] * len(inputs.hidden))
        with torch.enable_grad():
            states.requires_grad_()
            predicted = one_position(feedback(states, times, signal), inputs.hidden[-1])
            losses = inputs.losses_of(inputs.network.readout(predicted), labels)
            # The gradient of the summed loss. The loss of a row depends only on this row, so each row is the gradient of its
            # sample, without the factor 1/((L+1)·N).
            (credits,) = torch.autograd.grad(losses.sum(), states)
        return by_site(credits, inputs)

    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """Compute the mean of ‖G_ψ − pool(h_L)‖²/(‖pool(h_L)‖² + ε).

        The mean is over sites and samples. The graph of the loss contains only the parameters ψ.
        """
        predicted = feedback(*all_sites(inputs, feedback.conditioning_signal(inputs)))
        top = torch.cat([inputs.network.pool(inputs.hidden[-1])] * len(inputs.hidden))
        return ((predicted - top).square().sum(dim=1) / (top.square().sum(dim=1) + EPSILON)).mean()


def one_position(rows: Tensor, like: Tensor) -> Tensor:
    """Reshape rows (R, D) to states that have one position and the layout of `like`.

    The shape of the result is (R, D) for vectors, (R, 1, D) for tokens and (R, D, 1, 1) for maps.
    The average over positions is the row.
    """
    return rows if like.dim() == 2 else rows[:, None] if like.dim() == 3 else rows[:, :, None, None]


PLUGIN = StateBridge()
