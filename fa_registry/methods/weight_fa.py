"""Method weight_fa: feedback alignment as published.

A fixed random matrix B replaces W in the backward pass of every layer. Skip connections pass the credit back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._backward_weights import SUPPORTED, UNSUPPORTED, LayerMatrices, gaussian, replaced_credits
from fa_registry.methods._low_rank import RANK, checked_rank
from fa_registry.methods.base import (
    ALL_TASKS,
    CreditInputs,
    Method,
    MethodCard,
    NetworkShape,
    NetworkView,
    UsesBackwardWeights,
)
from fa_registry.methods.fa import LILLICRAP_2016
from fa_registry.records import Scalar


class WeightFeedbackAlignment(Method, UsesBackwardWeights):
    card = MethodCard(
        name="weight_fa",
        rule="backpropagation in which every layer's error goes back through a fixed random B instead of W",
        citation="Lillicrap, Cownden, Tweed & Akerman 2016",
        bibtex=LILLICRAP_2016,
        equations="forward y = x Wᵀ + b, backward dx = dy B, in every Linear and Conv of blocks and head; c_l is the error at h_l",
        deviations=(
            "B ~ N(0, 1/out), which preserves the expected norm of an error; the source draws uniformly and tunes the range",
            "the head's weight learns from the exact cross entropy, but the error is propagated back through the head's B",
            "with the option `rank`, every B = U V has rank r, and its entries keep the variance 1/out; a kernel is a matrix with "
            "one row per output channel; the source has no such option",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="B (out, in) of every layer with independent entries N(0, 1/out), fixed",
        properties=("feedback_fixed", "transposed_weights_give_bp"),
        options={"rank": RANK},
        needs_autograd=True,
        credit_scale_source="Lillicrap et al. 2016 use the error of one sample; in the code of Akrout et al. 2019, the error p "
        "− y is not divided by N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Draw B (out, in) of every layer.

        Raises:
            UsageError: the option `rank` is above the size of a layer.
        """
        sizes = {f"layer {name}": size for name, size in shape.weights.items()}
        return LayerMatrices(gaussian(shape, generator, checked_rank("weight_fa", options, sizes)))

    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        return feedback.matrices()

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return replaced_credits(inputs, self.backward_weights(feedback, inputs.network))


PLUGIN = WeightFeedbackAlignment()
