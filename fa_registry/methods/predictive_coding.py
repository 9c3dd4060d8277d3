"""Method predictive_coding: states relax towards a minimum of an energy.

The energy contains the prediction errors and the loss. The credit is the negative of the prediction error that remains.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._relaxation import SUPPORTED, UNSUPPORTED, relax
from fa_registry.methods.base import ALL_TASKS, CreditInputs, Method, MethodCard, NetworkShape
from fa_registry.records import Option, Scalar


class Inference(nn.Module):
    """Feedback state without tensors; it stores the options of the relaxation."""

    def __init__(self, options: Mapping[str, Scalar]):
        super().__init__()
        self.steps = int(options["steps"])
        self.step_size = float(options["step_size"])
        self.fixed_prediction = bool(options["fixed_prediction"])


class PredictiveCoding(Method):
    card = MethodCard(
        name="predictive_coding",
        rule="c_l = −ε_l, where ε_l is the prediction error that remains after the states have minimised an energy that "
        "contains the loss",
        citation="Whittington & Bogacz 2017; fixed prediction: Millidge, Tschantz & Buckley 2022",
        bibtex="""@article{whittington2017approximation,
  title={An approximation of the error backpropagation algorithm in a predictive coding network with local Hebbian
    synaptic plasticity},
  author={Whittington, James C. R. and Bogacz, Rafal},
  journal={Neural Computation}, volume={29}, number={5}, pages={1229--1262}, year={2017}
}
@article{millidge2022predictive,
  title={Predictive coding approximates backprop along arbitrary computation graphs},
  author={Millidge, Beren and Tschantz, Alexander and Buckley, Christopher L.},
  journal={Neural Computation}, volume={34}, number={6}, pages={1329--1368}, year={2022}
}""",
        equations="E = ½ Σ_l ‖ε_l‖² + Σ_i ℓ_i(readout(h_L)), ε_0 = h_0 − embed(x), ε_l = h_l − F_l(h_{l-1}), F_l block l's map; "
        "h ← h − η ∂E/∂h, all sites at once, from the forward pass; c_l = −ε_l. At rest ε_L = −g_L(h) and ε_{l-1} = ε_l J_l: "
        "the gradient at the relaxed states. Fixed prediction: ε_l ← ε_l − η(ε_l − ε_{l+1} J_{l+1}), J and g_L of the forward pass",
        deviations=(
            "the energy contains the loss; the source clamps the output to the target, with a squared error",
            "every variance is one, and every state relaxes, including h_0; if h_0 is the input itself (mlp), the source "
            "clamps h_0",
            "the step size is η = 0.05, because descent is stable only below 2/(1 + ‖J‖)²: with 0.1, resmlp fails on digits "
            "after 12 epochs. After 20 steps, the lower sites are still far from rest; credit_norm=rms corrects only the "
            "length of the credit, not its direction",
            "the credit updates the weights of a block at the states of the forward pass; the source uses the relaxed states",
            "the process noise of a block is switched off while states relax",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="none: the energy is a function of the network",
        has_feedback=False,
        properties=("fixed_prediction_gives_bp", "approaches_bp"),
        options={
            "steps": Option(
                20, "number of steps of the relaxation", "the source uses a number of the same order", least=1
            ),
            "step_size": Option(0.05, "step size of the descent on the energy", "chosen here", above=0),
            "fixed_prediction": Option(
                False, "whether predictions and Jacobians stay at their values in the forward pass", "Millidge et al."
            ),
        },
        needs_autograd=True,
        credit_scale_source="Whittington & Bogacz 2017: a prediction error belongs to one sample and is not divided by N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return Inference(options)

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        if feedback.fixed_prediction:
            errors = settle(inputs, feedback.steps, feedback.step_size)
        else:
            _, errors = relax(inputs, 1.0, feedback.steps, feedback.step_size)
        return [-error for error in errors]  # at rest ε_L = −g_L: tests/methods/test_predictive_coding.py


def settle(inputs: CreditInputs, steps: int, step_size: float) -> list[Tensor]:
    """Return the prediction errors ε_0..ε_L after `steps` steps of relaxation.

    Each step is ε_l ← ε_l − η(ε_l − J_{l+1}ᵀ ε_{l+1}). At site L, −g_L replaces the term J_{L+1}ᵀ ε_{L+1}. The Jacobians and g_L
    are those of the forward pass.
    """
    with torch.enable_grad():
        leaves = [state.detach().requires_grad_() for state in inputs.hidden[:-1]]
        predictions = [
            inputs.network.step(leaf, block(leaf)) for block, leaf in zip(inputs.network.blocks, leaves, strict=True)
        ]
    errors = [torch.zeros_like(state) for state in inputs.hidden]
    for _ in range(steps):
        maps = zip(predictions, leaves, errors[1:], strict=True)
        pulls = [torch.autograd.grad(*vector_product, retain_graph=True)[0] for vector_product in maps]
        pulls.append(-inputs.output_gradient)
        errors = [error - step_size * (error - pull) for error, pull in zip(errors, pulls, strict=True)]
    return errors


PLUGIN = PredictiveCoding()
