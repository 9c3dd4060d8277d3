"""Method kolen_pollack: the feedback receives the same updates as the weights.

Feedback and weights also have the same weight decay. Therefore their difference converges to zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._backward_weights import SUPPORTED, UNSUPPORTED, LayerMatrices, gaussian, replaced_credits
from fa_registry.methods.base import (
    ALL_TASKS,
    CreditInputs,
    LearnsFeedbackByLoss,
    Method,
    MethodCard,
    NetworkShape,
    NetworkView,
    UsesBackwardWeights,
)
from fa_registry.methods.weight_mirror import AKROUT_2019
from fa_registry.records import Scalar


class KolenPollack(Method, UsesBackwardWeights, LearnsFeedbackByLoss):
    card = MethodCard(
        name="kolen_pollack",
        rule="backpropagation through B instead of W, where B receives every update of W and the same weight decay",
        citation="Kolen & Pollack 1994; Akrout, Wilson, Humphreys, Lillicrap & Tweed 2019",
        bibtex="""@inproceedings{kolen1994backpropagation,
  title={Backpropagation without weight transport},
  author={Kolen, John F. and Pollack, Jordan B.},
  booktitle={Proceedings of the IEEE International Conference on Neural Networks}, volume={3}, pages={1375--1380}, year={1994}
}"""
        + "\n"
        + AKROUT_2019,
        equations="backward dx = dy B; W ← (1 − ηλ) W − η u, B ← (1 − ηλ) B − η u with u = u(∇W), so W − B ← (1 − ηλ)(W − B)",
        deviations=(
            "B has the orientation of W, (out, in), so B receives the update of W and not its transpose",
            "u is AdamW's step on ∇W; B has separate moments, which equal those of W; the sources use SGD",
            "λ is the weight decay of the recipe, 0.01. With the learning rate of the recipe, W − B shrinks by a fraction of "
            "only 1e-5 per step. B therefore aligns with W mainly because of the common updates, not because of the decay",
            "∇W includes everything that W learns from: the normalised credit, and the residual penalty if there is one",
            "if a control keeps a layer fixed, its B stays fixed too",
            "B starts at N(0, 1/out), as in weight_fa",
        ),
        architectures=SUPPORTED,
        tasks=ALL_TASKS,
        unsupported=UNSUPPORTED,
        gamma_reference="bp",
        exact_sites="none",
        feedback="B (out, in) of every layer, initially independent entries N(0, 1/out); learned",
        properties=("kolen_pollack_converges", "transposed_weights_give_bp"),
        learned=True,
        needs_autograd=True,
        may_reach_bp=True,
        credit_scale_source="the code of Akrout et al. 2019: the error p − y is not divided by N; only the update is divided by "
        "the batch size",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return LayerMatrices(gaussian(shape, generator), learn=True)

    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """Compute Σ <B, ∇W> over the layers that learn.

        The gradient of this loss with respect to B is ∇W, so the optimiser makes the same step for B as for W.
        """
        gradients = {name: inputs.network.get_submodule(name).weight.grad for name in feedback.layers}
        return sum(
            matrix.flatten() @ gradients[name].flatten()  # a dot product: no (out, in) temporary
            for name, matrix in feedback.matrices().items()
            if gradients[name] is not None
        )

    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        return {name: matrix.detach() for name, matrix in feedback.matrices().items()}

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return replaced_credits(inputs, self.backward_weights(feedback, inputs.network))


PLUGIN = KolenPollack()
