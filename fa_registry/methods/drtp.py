"""Method drtp: direct random target projection.

Fixed random matrices project the label to every block, so no block waits for the output.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods.base import ALL_TASKS, CreditInputs, Method, MethodCard, NetworkShape
from fa_registry.methods.dfa import direct_credits, direct_matrices
from fa_registry.records import Scalar


class DirectRandomTargetProjection(Method):
    card = MethodCard(
        name="drtp",
        rule="c_l = onehot(y) B_lᵀ, B_l fixed and random; c_0 uses B_1; for networks with bounded activations, such as tanh",
        citation="Frenkel, Lefebvre & Bol 2021",
        bibtex="""@article{frenkel2021learning,
  title={Learning without feedback: fixed random learning signals allow for feedforward training of deep neural networks},
  author={Frenkel, Charlotte and Lefebvre, Martin and Bol, David},
  journal={Frontiers in Neuroscience}, volume={15}, pages={629892}, year={2021}
}""",
        equations="c_l = onehot(y) B_lᵀ, B_l (D_l, C) with entries N(0, 1/C): the credit depends only on the class of a sample",
        deviations=(
            "the credit acts on the residual stream after block l, not on the pre-activation of one layer",
            "B_l ~ N(0, 1/C), as in dfa; the published code draws Kaiming-uniform",
            "the target replaces the error e with a plus sign, as in the published code, although the target is largest for "
            "the true class and e is smallest. B_l and −B_l are equally probable, so the sign of the rule is a convention",
            "the rule is for bounded activations, as the tanh layers of the source. The credit never vanishes, so other states "
            "grow without limit. On mlp (2×256, digits, 30 epochs, seeds 42, 123, 456), tanh reaches .264 to .300 with a growth of "
            "1.2, and frozen blocks .225 to .275; relu reaches .222 to .289 with a growth of 25 to 26, and frozen blocks .294 to "
            ".325. On resmlp with the paper's recipe the accuracy stays at chance",
            "the embedding shares B_1 with block 1, as in dfa; if the widths of sites 0 and 1 differ (mlp), the embedding "
            "has a separate matrix B_0",
            "targets of a regression are projected unchanged; the source treats only classes",
        ),
        architectures=("any",),
        tasks=ALL_TASKS,
        gamma_reference="bp",
        exact_sites="none",
        feedback="B_l (D, C) with independent entries N(0, 1/C), fixed",
        properties=("feedback_fixed", "drtp_ignores_error", "output_jacobian_gives_target_slope"),
        credit_scale_source="Frenkel et al. 2021: the target is projected without a factor 1/N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Draw the matrices B_l (D_l, C) ~ N(0, 1/C) for blocks 1..L.

        If the embedding and block 1 have different widths, a matrix B_00 for site 0 is also drawn.
        """
        return direct_matrices(shape, generator)

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return direct_credits(feedback, inputs.onehot, inputs.hidden)


PLUGIN = DirectRandomTargetProjection()
