"""skeleton: every site's credit is the output error through a fixed random matrix of its own. Make it yours."""

from __future__ import annotations

import torch

from fa_registry.methods.base import FixedMatrices, Method, MethodCard


class Skeleton(Method):
    card = MethodCard(
        name="skeleton",
        rule="c_l = e B_lᵀ, B_l fixed and random",  # one line, for tables
        citation="unpublished",
        bibtex="@misc{skeleton, title={Skeleton}, year={2026}}",
        equations="c_l = e B_lᵀ, e = softmax(z) − onehot(y) (N, C), one B_l (D_l, C) a site",
        deviations=(),  # from the source, each a sentence; () says that there is none
        architectures=("any",),
        gamma_reference="bp",  # what Γ compares the credit with, and means
        exact_sites="none",  # where the credit is the gradient by construction: none, last, all
        feedback="B_l (D_l, C), entries N(0, 1/C), fixed",
        properties=("feedback_fixed", "output_jacobian_gives_bp"),  # measured by the conformance suite: list them there
    )

    def feedback(self, shape, options, generator):
        """Everything the credit needs, as an nn.Module: what is fixed as buffers, what learns as parameters."""
        scale = shape.classes**-0.5
        return FixedMatrices([scale * torch.randn(width, shape.classes, generator=generator) for width in shape.sites])

    def credits(self, feedback, inputs):
        """c_0 .. c_L, each of the shape of its state: gradient sign, of the summed loss (no 1/N), at the output of block l."""
        return [inputs.error @ feedback.matrix(site + 1).T for site in range(len(inputs.hidden))]


PLUGIN = Skeleton()
