"""Method frsf: fixed random-magnitude sign-concordant feedback.

The feedback has the signs of the weights. Its magnitudes are drawn once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._backward_weights import (
    SUPPORTED,
    UNSUPPORTED,
    LayerMatrices,
    gaussian,
    replaced_credits,
    sign_concordant,
)
from fa_registry.methods.base import (
    ALL_TASKS,
    CreditInputs,
    Method,
    MethodCard,
    NetworkShape,
    NetworkView,
    UsesBackwardWeights,
)
from fa_registry.methods.usf import LIAO_2016
from fa_registry.records import Scalar


class FixedMagnitudeSignFeedback(Method, UsesBackwardWeights):
    card = MethodCard(
        name="frsf",
        rule="backpropagation in which every layer's error goes back through |M| ⊙ sign(W), M fixed and random",
        citation="Liao, Leibo & Poggio 2016",
        bibtex=LIAO_2016,
        equations="forward y = x Wᵀ + b, backward dx = dy B, B = |M| ⊙ sign(W); in every Linear and Conv of blocks and head",
        deviations=(
            "M ~ N(0, 1/out), so B has the same second moment as in weight_fa; fa_registry chose this scale, because the "
            "paper gives none",
            "weights learn with the common recipe, without Batch Normalization and Batch Manhattan updates, which the source needs",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="M (out, in) of every layer with independent entries N(0, 1/out), fixed; B has the signs of the weights",
        properties=("feedback_fixed", "feedback_follows_sign", "transposed_weights_give_bp"),
        needs_autograd=True,
        credit_scale_source="Liao et al. 2016 propagate the derivative of one sample's loss; the update contains 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return LayerMatrices(gaussian(shape, generator))

    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        return sign_concordant(network, feedback.matrices())

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return replaced_credits(inputs, self.backward_weights(feedback, inputs.network))


PLUGIN = FixedMagnitudeSignFeedback()
