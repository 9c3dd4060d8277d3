"""forward_forward: every block learns to be active on an image with its true label in it and quiet on one with a wrong label."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.errors import UsageError
from fa_registry.methods.base import CreditInputs, Method, MethodCard, NetworkShape, NetworkView, NoFeedback
from fa_registry.records import Option, Scalar
from fa_registry.terminal_loss import is_regression


def states_of(network: NetworkView, images: Tensor) -> list[Tensor]:
    """h_0..h_L of these images, as the network computes them now."""
    states = [network.embed(images)]
    for block in network.blocks:
        states.append(network.step(states[-1], block(states[-1])))
    return states


class ForwardForward(Method):
    card = MethodCard(
        name="forward_forward",
        rule="c_l is the gradient of block l's own loss on its goodness: high under the true label, low under a wrong one",
        citation="Hinton 2022",
        bibtex="""@article{hinton2022forward,
  title={The forward-forward algorithm: some preliminary investigations},
  author={Hinton, Geoffrey},
  journal={arXiv preprint arXiv:2212.13345}, year={2022}
}""",
        equations="G(h) = mean_d h_d²; ℓ_l = softplus(θ − G(h_l⁺)) + softplus(G(h_l⁻) − θ), h⁺ from x with y written into its "
        "first C pixels, h⁻ with y′; c_l = ∂ℓ_l/∂h_l⁺ + ∂ℓ_l/∂h_l⁻ = (2/D)(σ(G⁻ − θ) h_l⁻ − σ(θ − G⁺) h_l⁺)",
        deviations=(
            "the presynaptic side is the clean pass, without a label: the credits of both passes add up at its states, so that a "
            "block learns from their difference on inputs it did not see; in the source each pass trains on its own states",
            "y′ is the wrong class the network's own clean pass finds most probable; the source draws it by that probability",
            "label pixels are 1 for the class shown and 0 for the others, in units of the standardised image",
            "goodness is the mean square of the residual stream after block l, not of a layer's activations",
            "a block's input is not normalised to hide its goodness from the next, except by the architecture's own LayerNorm",
            "the prediction is the head's, from the top state of the clean pass and by the exact cross entropy (the source's fast "
            "linear classifier reads all hidden layers but the first); goodness itself never classifies",
            "θ = 1; the source sets it to the number of units where goodness is a sum of squares, which is 1 of their mean",
        ),
        architectures=("resmlp", "mlp"),
        unsupported="the source writes the label into pixels that fully connected layers read; a convolution or attention would "
        "need another way to show it everywhere",
        gamma_reference="informational",
        exact_sites="none",
        feedback="none: two more forward passes",
        properties=("credit_ignores_blocks_above",),
        options={
            "threshold": Option(1.0, "θ, the goodness to pass", "Hinton 2022: number of units, of a sum", above=0)
        },
        credit_scale_source="Hinton 2022: a sample's own goodness and its slope; no loss over the batch is differentiated",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """No tensors, but θ, which the credit needs; raises UsageError where an image has fewer pixels than classes."""
        pixels = math.prod(shape.image)
        if pixels < shape.classes:
            raise UsageError(
                f"method 'forward_forward' writes a label into one pixel a class: expected images of at least {shape.classes} "
                f"pixels (the classes), found {pixels}"
            )
        module = NoFeedback()
        module.threshold = float(options["threshold"])
        return module

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """c_l = ∂ℓ/∂h⁺ + ∂ℓ/∂h⁻ of site l's own loss ℓ, (N, D_l); raises UsageError where targets are values, not classes."""
        if is_regression(inputs.labels):
            raise UsageError("method 'forward_forward' needs class labels; the data set's targets are values")
        positive, negative = inputs.onehot, hardest_wrong(inputs)
        shown = [with_label(inputs.images, rows) for rows in (positive, negative)]
        states = states_of(inputs.network, torch.cat(shown))  # each (2 batch, hidden)
        return [local_slope(*state.chunk(2), feedback.threshold) for state in states]


def hardest_wrong(inputs: CreditInputs) -> Tensor:
    """One-hot rows (N, C) of the wrong class that the clean pass finds most probable."""
    probable = inputs.error + inputs.onehot
    wrong = (probable - 2 * inputs.onehot).argmax(dim=1)  # the true class is at most −1 there
    # one_hot would read the classes on the host to check them
    return torch.zeros_like(inputs.onehot).scatter_(1, wrong[:, None], 1)


def with_label(images: Tensor, rows: Tensor) -> Tensor:
    """The images (N, …) with `rows` (N, C) in place of their first C pixels."""
    pixels = images.flatten(1)
    return torch.cat([rows, pixels[:, rows.shape[1] :]], dim=1).reshape(images.shape)


def local_slope(positive: Tensor, negative: Tensor, threshold: float) -> Tensor:
    """∂ℓ/∂h⁺ + ∂ℓ/∂h⁻ of the states (N, D) of both passes."""
    active, quiet = (state.square().mean(dim=1, keepdim=True) for state in (positive, negative))  # goodness (batch, 1)
    push = (quiet - threshold).sigmoid() * negative - (threshold - active).sigmoid() * positive
    return push * (2 / positive.shape[1])


PLUGIN = ForwardForward()
