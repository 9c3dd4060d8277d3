"""dfa: direct feedback alignment. The output error is projected straight to every block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fa_registry.methods.base import CreditInputs, FixedMatrices, Method, MethodCard, NetworkShape
from fa_registry.records import Scalar


def direct_matrices(shape: NetworkShape, generator: torch.Generator) -> FixedMatrices:
    """Return B_1..B_L, B_l (D_l, C) ~ N(0, 1/C), and B_00 (D_0, C) if site 0 is not as wide as site 1.

    B_00 is drawn last.
    """
    scale = shape.classes**-0.5
    widths = list(shape.sites[1:])
    matrices = FixedMatrices([torch.randn(width, shape.classes, generator=generator) * scale for width in widths])
    if widths and shape.sites[0] != widths[0]:
        drawn = torch.randn(shape.sites[0], shape.classes, generator=generator) * scale
        matrices.register_buffer("B_00", drawn)
    return matrices


def direct_credits(feedback: FixedMatrices, rows: Tensor, hidden: Sequence[Tensor]) -> list[Tensor]:
    """Return rows (N, C) multiplied by the matrix of every site 0..L; site 0 uses B_1 if there is no B_00."""
    first = 0 if hasattr(feedback, "B_00") else 1
    return [rows @ feedback.matrix(max(site, first)).T for site in range(len(hidden))]  # each (batch, hidden)


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
            "the embedding shares B_1 with block 1, as in the published reference code; if the widths of sites 0 and 1 differ "
            "(mlp), it has a separate matrix B_0",
        ),
        architectures=("any",),
        gamma_reference="bp",
        exact_sites="none",
        feedback="B_l (D, C) with independent entries N(0, 1/C), fixed",
        properties=("feedback_fixed", "output_jacobian_gives_bp"),
        credit_scale_source="arXiv 2606.21126's code: the error is softmax − onehot, without 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Return B_1..B_L, B_l (D_l, C) ~ N(0, 1/C), and B_00 if the embedding is not as wide as block 1."""
        return direct_matrices(shape, generator)

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Return c_l = e B_lᵀ, (N, D_l), with e (N, C) the error of the summed loss.

        Site 0 uses B_1 if there is no B_00.
        """
        return direct_credits(feedback, inputs.error, inputs.hidden)


PLUGIN = DirectFeedbackAlignment()
