"""Method weight_mirror: feedback learns the weights from noise.

Noise vectors are sent through the weights of each layer, so the weights need not be copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._backward_weights import LayerMatrices, gaussian, layer_weights, replaced_credits
from fa_registry.methods.base import (
    ALL_TASKS,
    CreditInputs,
    HasFeedbackRule,
    Method,
    MethodCard,
    NetworkShape,
    NetworkView,
    UsesBackwardWeights,
)
from fa_registry.records import Option, Scalar

AKROUT_2019 = """@inproceedings{akrout2019deep,
  title={Deep learning without weight transport},
  author={Akrout, Mohamed and Wilson, Collin and Humphreys, Peter C. and Lillicrap, Timothy and Tweed, Douglas B.},
  booktitle={Advances in Neural Information Processing Systems}, volume={32}, year={2019}
}"""


class Mirrors(LayerMatrices):
    """Matrices B, with the rate d and the number n of noise vectors per step.

    The attribute `samples` is n.
    """

    def __init__(self, matrices: Mapping[str, Tensor], rate: float, samples: int):
        super().__init__(matrices)
        self.rate = rate
        self.samples = samples


class WeightMirror(Method, UsesBackwardWeights, HasFeedbackRule):
    card = MethodCard(
        name="weight_mirror",
        rule="backpropagation through B instead of W, where B is an average of the correlation between noise before W and the "
        "same noise after W",
        citation="Akrout, Wilson, Humphreys, Lillicrap & Tweed 2019",
        bibtex=AKROUT_2019,
        equations="backward dx = dy B; ξ (n, in) ~ N(0, 1), y = ξ Wᵀ, B ← (1 − d) B + d yᵀξ/n, and E[yᵀξ/n] = W",
        deviations=(
            "the noise passes only through the weights, not through bias and activation; therefore the estimate of W is unbiased",
            "every layer is mirrored after every update of the weights, not in separate phases",
            "growth and decay have the same rate d, so the fixed point of B is W; the source has two rates, so B ∝ W",
            "fa_registry chose d = 0.01 and n = 128; if W is constant, ‖B − W‖²/‖W‖² converges to d/(2 − d)·(in + 1)/n",
            "B starts at N(0, 1/out), as in weight_fa, and therefore has a larger variance than W",
        ),
        architectures=("resmlp", "mlp", "student_net", "vit_mini", "causal_transformer"),
        tasks=ALL_TASKS,
        unsupported="noise vectors are sent through each weight matrix; the source describes no method for a kernel, which many "
        "positions share, and only the Linear layer of fa_registry can use another matrix in the backward pass",
        gamma_reference="bp",
        exact_sites="none",
        feedback="B (out, in) of every layer, initially independent entries N(0, 1/out); learned",
        properties=("mirror_converges", "transposed_weights_give_bp"),
        options={
            "mirror_rate": Option(
                0.01, "d, the factor with which the new estimate is added to B at every step", "chosen here", above=0
            ),
            "mirror_batch": Option(
                128, "n, number of noise vectors sent through every layer per step", "the recipe's batch", least=1
            ),
        },
        learned=True,
        needs_autograd=True,
        may_reach_bp=True,
        credit_scale_source="the code of Akrout et al. 2019: the error p − y is not divided by N; only the update is divided by "
        "the batch size",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return Mirrors(gaussian(shape, generator), float(options["mirror_rate"]), int(options["mirror_batch"]))

    def update_feedback(self, feedback: nn.Module, inputs: CreditInputs) -> None:
        """Update B ← (1 − d) B + d yᵀξ/n for every layer, in place.

        The noise ξ (n, in) is drawn from inputs.generator.
        """
        weights = layer_weights(inputs.network, feedback.layers)
        for name, matrix in feedback.matrices().items():
            noise = matrix.new_empty(feedback.samples, matrix.shape[1]).normal_(generator=inputs.generator)  # (n, in)
            response = noise @ weights[name].T  # (n, out)
            matrix.lerp_(response.T @ noise / feedback.samples, feedback.rate)  # (out, in)

    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        return feedback.matrices()

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return replaced_credits(inputs, self.backward_weights(feedback, inputs.network))


PLUGIN = WeightMirror()
