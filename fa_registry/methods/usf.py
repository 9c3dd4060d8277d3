"""Method usf: uniform sign-concordant feedback.

The backward pass uses only the signs of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._backward_weights import SUPPORTED, UNSUPPORTED, backward_std, layer_weights, replaced_credits
from fa_registry.methods.base import (
    ALL_TASKS,
    CreditInputs,
    Method,
    MethodCard,
    NetworkShape,
    NetworkView,
    UsesBackwardWeights,
)
from fa_registry.records import Scalar

LIAO_2016 = """@inproceedings{liao2016important,
  title={How important is weight symmetry in backpropagation?},
  author={Liao, Qianli and Leibo, Joel Z. and Poggio, Tomaso},
  booktitle={Proceedings of the AAAI Conference on Artificial Intelligence}, volume={30}, year={2016}
}"""


class LayerNames(nn.Module):
    """Feedback state without tensors; it stores the names of the layers.

    The signs are read from the network's weights at every step.
    """

    def __init__(self, layers: tuple[str, ...]):
        super().__init__()
        self.layers = layers


class UniformSignFeedback(Method, UsesBackwardWeights):
    card = MethodCard(
        name="usf",
        rule="backpropagation in which every layer's error goes back through s·sign(W) instead of W",
        citation="Liao, Leibo & Poggio 2016",
        bibtex=LIAO_2016,
        equations="forward y = x Wᵀ + b, backward dx = dy B, B = out^(-1/2) sign(W); in every Linear and Conv of blocks and head",
        deviations=(
            "s = out^(-1/2), so B has the same second moment as in weight_fa; the source has s = 1",
            "weights learn with the common recipe, without Batch Normalization and Batch Manhattan updates, which the source needs",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="none: the signs of the network's weights",
        has_feedback=False,
        properties=("approaches_bp", "feedback_follows_sign", "usf_on_sign_weights_gives_bp"),
        needs_autograd=True,
        credit_scale_source="Liao et al. 2016 propagate the derivative of one sample's loss; the update contains 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return LayerNames(tuple(shape.weights))

    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        weights = layer_weights(network, feedback.layers)
        signs = torch._foreach_sign(list(weights.values()))  # all layers in one launch
        lengths = [backward_std(sign.shape) for sign in signs]
        return dict(zip(weights, torch._foreach_mul(signs, lengths), strict=True))

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return replaced_credits(inputs, self.backward_weights(feedback, inputs.network))


PLUGIN = UniformSignFeedback()
