"""Method brsf: batchwise random-magnitude sign-concordant feedback.

The feedback has the signs of the weights. New magnitudes are drawn after every update of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._backward_weights import (
    SUPPORTED,
    UNSUPPORTED,
    LayerMatrices,
    backward_std,
    gaussian,
    replaced_credits,
    sign_concordant,
)
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
from fa_registry.methods.usf import LIAO_2016
from fa_registry.records import Scalar


class BatchMagnitudeSignFeedback(Method, UsesBackwardWeights, HasFeedbackRule):
    card = MethodCard(
        name="brsf",
        rule="backpropagation in which every layer's error goes back through |M| ⊙ sign(W), M redrawn for each batch",
        citation="Liao, Leibo & Poggio 2016",
        bibtex=LIAO_2016,
        equations="forward y = x Wᵀ + b, backward dx = dy B, B = |M| ⊙ sign(W); in every Linear and Conv of blocks and head",
        deviations=(
            "M ~ N(0, 1/out), so B has the same second moment as in weight_fa; fa_registry chose this scale, because the "
            "paper gives none",
            "weights learn with the common recipe, without Batch Normalization and Batch Manhattan updates, which the source needs",
            "the M that is saved and measured was drawn after the last step, so no training step has used it",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="M (out, in) of every layer with independent entries N(0, 1/out), redrawn after every update of the weights",
        properties=("feedback_follows_sign", "transposed_weights_give_bp"),
        needs_autograd=True,
        credit_scale_source="Liao et al. 2016 propagate the derivative of one sample's loss; the update contains 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return LayerMatrices(gaussian(shape, generator))

    def update_feedback(self, feedback: nn.Module, inputs: CreditInputs) -> None:
        for magnitude in feedback.matrices().values():
            magnitude.normal_(0.0, backward_std(magnitude.shape), generator=inputs.generator)

    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        return sign_concordant(network, feedback.matrices())

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return replaced_credits(inputs, self.backward_weights(feedback, inputs.network))


PLUGIN = BatchMagnitudeSignFeedback()
