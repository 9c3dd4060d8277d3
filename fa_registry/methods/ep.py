"""ep: equilibrium propagation on a predictive-coding energy. The credit is how far a weakly nudged state moved."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._relaxation import SUPPORTED, UNSUPPORTED, relax
from fa_registry.methods.base import CreditInputs, Method, MethodCard, NetworkShape
from fa_registry.records import Option, Scalar


class Nudged(nn.Module):
    """β and the relaxation's length: options alone, no tensor."""

    def __init__(self, options: Mapping[str, Scalar]):
        super().__init__()
        self.beta = float(options["beta"])
        self.steps = int(options["steps"])
        self.step_size = float(options["step_size"])


class EquilibriumPropagation(Method):
    card = MethodCard(
        name="ep",
        rule="c_l = −(h_l^β − h_l^0)/β, the shift of a state that relaxes under a nudge β of the loss",
        citation="Scellier & Bengio 2017",
        bibtex="""@article{scellier2017equilibrium,
  title={Equilibrium propagation: Bridging the gap between energy-based models and backpropagation},
  author={Scellier, Benjamin and Bengio, Yoshua},
  journal={Frontiers in Computational Neuroscience}, volume={11}, pages={24}, year={2017}
}""",
        equations="E = ½ Σ_l ‖ε_l‖² + β Σ_i ℓ_i(readout(h_L)), ε_0 = h_0 − embed(x), ε_l = h_l − F_l(h_{l-1}), F_l block l's map; "
        "h ← h − η ∂E/∂h, all sites at once, from the forward pass; c_l = −(h_l − h_l^0)/β. At rest and as β → 0: −ε_l/β → g_l "
        "and c_l → P_l g_l, P_l = Σ_{k≤l} J_{k→l} J_{k→l}ᵀ: the gradient through a positive definite matrix, not the gradient",
        deviations=(
            "the energy is that of predictive coding on the feed-forward network, so the free phase is the forward pass; the "
            "source relaxes a Hopfield energy with symmetric weights twice",
            "the credit drives the block's weights as J_l says; the source contrasts ∂E/∂w at the two fixed points",
            "every state relaxes, h_0 included; where h_0 is the input itself (mlp) the source clamps it",
            "step size η = 0.1: descent is stable below 2/(1 + ‖J‖)², at 0.2 resmlp's states explode within 24 epochs of digits; "
            "20 steps leave the lower sites far from rest",
            "process noise of a block is off while states relax",
        ),
        architectures=SUPPORTED,
        unsupported=UNSUPPORTED,
        gamma_reference="gauss_newton",
        exact_sites="none",
        feedback="none: the network's own energy",
        properties=("prediction_errors_give_bp", "approaches_bp"),
        options={
            "beta": Option(0.5, "nudge β of the loss", "arXiv 2606.21126", above=0),
            "steps": Option(20, "steps of the nudged phase", "arXiv 2606.21126", least=1),
            "step_size": Option(0.1, "of the descent on the energy", "unpublished; chosen here", above=0),
        },
        credit_scale_source="Scellier & Bengio 2017: the energy, and with it a state's shift, is a sample's own, without 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return Nudged(options)

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        shifts, _ = relax(inputs, feedback.beta, feedback.steps, feedback.step_size)
        return [-shift / feedback.beta for shift in shifts]


PLUGIN = EquilibriumPropagation()
