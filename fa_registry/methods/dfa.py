"""dfa: direct feedback alignment. The output error is projected straight to every block."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods.base import CreditInputs, FixedMatrices, Method, MethodCard, NetworkShape
from fa_registry.records import Scalar


class DirectFeedbackAlignment(Method):
    card = MethodCard(
        name="dfa",
        rule="c_l = e B_lᵀ, B_l fixed and random; c_0 uses B_1",
        citation="Nøkland 2016",
        bibtex="""@inproceedings{nokland2016direct,
  title={Direct feedback alignment provides learning in deep neural networks},
  author={N{\\o}kland, Arild},
  booktitle={Advances in Neural Information Processing Systems}, volume={29}, year={2016}
}""",
        equations="c_l = e B_lᵀ, B_l (D_l, C) with entries N(0, 1/C)",
        deviations=(
            "the credit acts on the residual stream after block l, not on the pre-activation of one layer",
            "the embedding shares B_1 with block 1, as in the published reference code",
        ),
        architectures=("any",),
        gamma_reference="bp",
        exact_sites="none",
        feedback="B_l (D, C) with independent entries N(0, 1/C), fixed",
        properties=("feedback_fixed", "output_jacobian_gives_bp"),
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        scale = shape.classes**-0.5
        return FixedMatrices(
            [torch.randn(width, shape.classes, generator=generator) * scale for width in shape.sites[1:]]
        )

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        blocks = len(inputs.hidden) - 1
        direct = [inputs.error @ feedback.matrix(block).T for block in range(1, blocks + 1)]  # each (batch, hidden)
        return [direct[0], *direct]


PLUGIN = DirectFeedbackAlignment()
