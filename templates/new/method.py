"""skeleton: each site's credit is the output error times a fixed random matrix. Replace it with yours."""

from __future__ import annotations

import torch

from fa_registry.methods.base import FixedMatrices, Method, MethodCard


class Skeleton(Method):
    card = MethodCard(
        name="skeleton",
        rule="c_l = e B_lᵀ, B_l fixed and random",  # one line, for tables
        citation="unpublished",
        bibtex="@misc{skeleton, title={Skeleton}, year={2026}}",
        equations="c_l = e B_lᵀ, e = softmax(z) − onehot(y) (N, C), one B_l (D_l, C) per site",
        deviations=(),  # from the source, one sentence each; () means none
        architectures=("any",),
        gamma_reference="bp",  # what Γ compares the credit with
        exact_sites="none",  # where the credit is the gradient by construction: none, last, all
        feedback="B_l (D_l, C), entries N(0, 1/C), fixed",
        properties=(
            "feedback_fixed",
            "output_jacobian_gives_bp",
        ),  # checked by the conformance suite, which lists the names
    )

    def feedback(self, shape, options, generator):
        """Return all the credit needs as an nn.Module: fixed tensors as buffers, learned ones as parameters."""
        scale = shape.classes**-0.5
        return FixedMatrices([scale * torch.randn(width, shape.classes, generator=generator) for width in shape.sites])

    def credits(self, feedback, inputs):
        """Return c_0 .. c_L in the states' shapes: gradient sign, summed loss (no 1/N), at block outputs."""
        return [inputs.error @ feedback.matrix(site + 1).T for site in range(len(inputs.hidden))]


PLUGIN = Skeleton()
