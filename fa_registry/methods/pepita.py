"""Method pepita: error-driven input modulation.

A second forward pass replaces the backward pass. Its input is the sum of the input and the projected error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods.base import CreditInputs, Method, MethodCard, NetworkShape, NetworkView
from fa_registry.records import Option, Scalar


def states_of(network: NetworkView, images: Tensor) -> list[Tensor]:
    """Compute the states h_0..h_L for the images, with the network's current weights."""
    states = [network.embed(images)]
    for block in network.blocks:
        states.append(network.step(states[-1], block(states[-1])))
    return states


class Projection(nn.Module):
    """Fixed matrix F (inputs, C), which maps an error to the shape of an input."""

    def __init__(self, matrix: Tensor):
        super().__init__()
        self.register_buffer("F", matrix)


class ErrorDrivenInputModulation(Method):
    card = MethodCard(
        name="pepita",
        rule="c_l = h_l(x) − h_l(x + F e), F fixed and random",
        citation="Dellaferrera & Kreiman 2022",
        bibtex="""@inproceedings{dellaferrera2022error,
  title={Error-driven input modulation: solving the credit assignment problem without a backward pass},
  author={Dellaferrera, Giorgia and Kreiman, Gabriel},
  booktitle={International Conference on Machine Learning}, volume={162}, pages={4937--4955}, year={2022},
  organization={PMLR}
}""",
        equations="c_l = h_l(x) − h_l(x + F e), F (inputs, C) with entries U(±scale·√(6/inputs)); to first order "
        "c_l = −(∂h_l/∂x) F e",
        deviations=(
            "weights are updated at the states of the clean pass; the source updates the weights at the states of the "
            "modulated pass, x + F e",
            "a block uses the credit as the gradient at its output, so the credit is multiplied by the derivatives of the "
            "activations; the source multiplies the credit directly with the layer's input",
            "the head learns from the exact cross entropy of the clean pass; the source trains the head with the modulated "
            "pass too",
            "h_l is the residual stream after block l, including the embedding's output; the source has plain layers",
            "with credit_norm=rms, the size of F e changes the update only through the curvature of the network; in the source, "
            "small errors lead to small updates",
            "the difference is computed in float32: for an error below about 1e-5, it contains only rounding errors",
            "no dropout; weight decay and learning rate are those of the registry's recipe; pixels are standardised as the data "
            "set's card describes",
        ),
        architectures=("resmlp", "mlp", "student_net"),
        unsupported="the source modulates images before fully connected or convolutional layers and does not describe "
        "attention; a block with process noise would have different noise in the second pass",
        gamma_reference="bp",
        exact_sites="none",
        feedback="F (inputs, C) with independent entries U(±0.05·√(6/inputs)), fixed",
        properties=("feedback_fixed", "modulation_gives_bp_at_the_input", "credit_ignores_blocks_above"),
        options={
            "scale": Option(
                0.05,
                "factor of the range of F, whose entries are U(±scale·√(6/inputs))",
                "published code, mean-zero F",
                above=0,
            )
        },
        credit_scale_source="Dellaferrera & Kreiman 2022: the difference of two passes of one sample; the error is not divided "
        "by N",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        inputs = math.prod(shape.image)
        bound = float(options["scale"]) * math.sqrt(6 / inputs)
        return Projection(torch.empty(inputs, shape.classes).uniform_(-bound, bound, generator=generator))

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = h_l(x) − h_l(x + F e), in the shape of the state."""
        # clean minus modulated, so that −c_l moves a state towards its value at x + F e: tests/methods/test_pepita.py
        shift = (inputs.error @ feedback.F.T).reshape(inputs.images.shape)  # (batch, classes) -> (batch, *image)
        modulated = states_of(inputs.network, inputs.images + shift)
        return [clean - modulated_state for clean, modulated_state in zip(inputs.hidden, modulated, strict=True)]


PLUGIN = ErrorDrivenInputModulation()
