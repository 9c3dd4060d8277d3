"""Method ep: equilibrium propagation on a predictive-coding energy.

The method compares two phases: a free phase, and a phase in which the loss nudges the states weakly. The option `contrast` selects
what is compared: the energy's parameter gradients, as in the source, or the states.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._relaxation import SUPPORTED, UNSUPPORTED, relax
from fa_registry.methods.base import (
    ALL_TASKS,
    CreditedStates,
    CreditInputs,
    HasOwnStates,
    Method,
    MethodCard,
    NetworkShape,
)
from fa_registry.records import Option, Scalar

PARAMETER, STATE = CONTRASTS = ("parameter", "state")


class Nudged(nn.Module):
    """Feedback state without tensors; it stores the options of the relaxation.

    The options are the contrast, β, the number of steps and the step size.
    """

    def __init__(self, options: Mapping[str, Scalar]):
        super().__init__()
        self.beta = float(options["beta"])
        self.steps = int(options["steps"])
        self.step_size = float(options["step_size"])
        # runs without this option were trained with the state contrast and must be recomputed with this contrast
        self.contrast = str(options.get("contrast", STATE))


class EquilibriumPropagation(Method, HasOwnStates):
    card = MethodCard(
        name="ep",
        version=2,  # contrast=parameter is the default
        rule="contrast=parameter: c_l = −ε_l^β/β, the prediction error of states that relax under a nudge β of the loss, and block "
        "l learns at the nudged h_{l-1}^β; contrast=state: c_l = −(h_l^β − h_l^0)/β, the shift of the state itself",
        citation="Scellier & Bengio 2017",
        bibtex="""@article{scellier2017equilibrium,
  title={Equilibrium propagation: Bridging the gap between energy-based models and backpropagation},
  author={Scellier, Benjamin and Bengio, Yoshua},
  journal={Frontiers in Computational Neuroscience}, volume={11}, pages={24}, year={2017}
}""",
        equations="E = ½ Σ_l ‖ε_l‖² + β Σ_i ℓ_i(readout(h_L)), ε_0 = h_0 − embed(x), ε_l = h_l − F_l(h_{l-1}), F_l block l's map; "
        "h ← h − η ∂E/∂h, all sites at once, from the forward pass h^0, where every ε_l = 0 and so ∂E/∂θ = 0, to h^β. "
        "contrast=parameter: Δθ_l ∝ −(∂E/∂θ|h^β − ∂E/∂θ|h^0)/β = (ε_l^β/β) ∂F_l(h_{l-1}^β)/∂θ, which is c_l = −ε_l^β/β at "
        "h_{l-1}^β. contrast=state: c_l = −(h_l^β − h_l^0)/β at h_{l-1}^0. At rest and as β → 0: −ε_l^β/β → g_l, the gradient, and "
        "−(h_l^β − h_l^0)/β → P_l g_l, P_l = Σ_{k≤l} J_{k→l} J_{k→l}ᵀ: the gradient through a positive definite matrix, not the "
        "gradient",
        deviations=(
            "the energy is that of predictive coding on the feed-forward network, so the free phase is the forward pass; the "
            "source relaxes a Hopfield energy with symmetric weights twice",
            "a credit is normalised per sample (credit_norm), which removes the length of ε_l^β/β; the contrast of the source "
            "keeps this length",
            "the head learns from the exact cross entropy at h_L of the forward pass, as in every method; the source evaluates the "
            "cross entropy at h_L^β",
            "contrast=state updates the weights of a block with the displacement, at the states of the forward pass; this is not a "
            "contrast of ∂E/∂θ. At rest, its Γ is the cosine of P_l g_l with g_l, which is below one (gauss_newton)",
            "every state relaxes, including h_0; if h_0 is the input itself (mlp), the source clamps h_0",
            "the step size is η = 0.1, because descent is stable only below 2/(1 + ‖J‖)²: with 0.2, the states of resmlp "
            "diverge within 24 epochs of digits. After 20 steps, the lower sites are still far from rest",
            "the process noise of a block is switched off while states relax",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="none: the energy is a function of the network",
        has_feedback=False,
        properties=("prediction_errors_give_bp", "approaches_bp"),
        options={
            "contrast": Option(
                PARAMETER,
                "value that is compared between the two phases: parameter (the energy's parameter gradient) or state (the "
                "displacement of the states). Runs that were recorded before this option existed used state",
                "Scellier & Bengio 2017",
                choices=CONTRASTS,
            ),
            "beta": Option(0.5, "β, weight of the loss in the energy of the nudged phase", "arXiv 2606.21126", above=0),
            "steps": Option(20, "number of steps of the nudged phase", "arXiv 2606.21126", least=1),
            "step_size": Option(0.1, "step size of the descent on the energy", "unpublished; chosen here", above=0),
        },
        needs_autograd=True,
        credit_scale_source="Scellier & Bengio 2017: the energy is that of one sample, so the shift of a state contains no "
        "factor 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return Nudged(options)

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return self.credits_and_states(feedback, inputs).credits

    def credits_and_states(self, feedback: nn.Module, inputs: CreditInputs) -> CreditedStates:
        """Compute the credits and the states at which the blocks learn.

        With contrast=parameter, c_l = −ε_l/β, and the blocks learn at the nudged states h_l^β. With contrast=state, c_l = −(h_l^β
        − h_l^0)/β, and the blocks learn at the states h_l^0 of the forward pass. Each credit has the shape of its state.
        """
        # The states relax *down* the loss, so the shift points against the gradient, and the minus sign reverses the shift. As
        # β → 0, the parameter contrast is g_l, and a step is the contrast of the energy's gradients (tests/methods/test_ep.py).
        shifts, errors = relax(inputs, feedback.beta, feedback.steps, feedback.step_size)
        if feedback.contrast == STATE:
            return CreditedStates([-shift / feedback.beta for shift in shifts])
        nudged = [state + shift for state, shift in zip(inputs.hidden, shifts, strict=True)]
        return CreditedStates([-error / feedback.beta for error in errors], nudged)


PLUGIN = EquilibriumPropagation()
