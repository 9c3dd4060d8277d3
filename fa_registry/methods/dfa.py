"""Method dfa: direct feedback alignment.

A fixed random matrix per block projects the output error directly to the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fa_registry.methods._low_rank import RANK, checked_rank, normal
from fa_registry.methods.base import ALL_TASKS, CreditInputs, FixedMatrices, Method, MethodCard, NetworkShape
from fa_registry.records import Scalar


def direct_matrices(shape: NetworkShape, generator: torch.Generator, rank: int = 0) -> FixedMatrices:
    """Draw the matrices B_l (D_l, C) ~ N(0, 1/C) for blocks 1..L.

    If sites 0 and 1 have different widths, a matrix B_00 (D_0, C) for site 0 is drawn after the others. `rank` is the rank of every
    matrix, or 0 for independent entries.
    """
    scale = shape.classes**-0.5
    widths = list(shape.sites[1:])
    matrices = FixedMatrices([normal((width, shape.classes), generator, rank) * scale for width in widths])
    if widths and shape.sites[0] != widths[0]:
        matrices.register_buffer("B_00", normal((shape.sites[0], shape.classes), generator, rank) * scale)
    return matrices


def direct_credits(feedback: FixedMatrices, rows: Tensor, hidden: Sequence[Tensor]) -> list[Tensor]:
    """Multiply rows (N, C) by the transposed matrix of every site 0..L.

    Site 0 uses B_1 if there is no B_00.
    """
    lowest_block = 0 if hasattr(feedback, "B_00") else 1
    return [rows @ feedback.matrix(max(site, lowest_block)).T for site in range(len(hidden))]  # each (batch, hidden)


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
            "(mlp), the embedding has a separate matrix B_0",
            "with the option `rank`, B_l = U_l V_l of rank r, whose entries keep the variance 1/C; the source has no such option",
        ),
        architectures=("any",),
        tasks=ALL_TASKS,
        gamma_reference="bp",
        exact_sites="none",
        feedback="B_l (D, C) with independent entries N(0, 1/C), fixed",
        properties=("feedback_fixed", "output_jacobian_gives_bp"),
        options={"rank": RANK},
        credit_scale_source="arXiv 2606.21126's code: the error is softmax − onehot, without 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Draw the matrices B_l (D_l, C) ~ N(0, 1/C) for blocks 1..L.

        If the embedding and block 1 have different widths, a matrix B_00 for site 0 is also drawn.

        Raises:
            UsageError: the option `rank` is above the width of a site or the number of classes.
        """
        sizes = {
            f"B_{site} of site {site}": (width, shape.classes) for site, width in reversed([*enumerate(shape.sites)])
        }
        return direct_matrices(shape, generator, checked_rank("dfa", options, sizes))

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = e B_lᵀ, (N, D_l), where e (N, C) is the error of the summed loss.

        Site 0 uses B_1 if there is no B_00.
        """
        return direct_credits(feedback, inputs.error, inputs.hidden)


PLUGIN = DirectFeedbackAlignment()
