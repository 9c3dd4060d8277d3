"""Method forward_forward: each block learns to distinguish true labels from wrong labels.

The label is written into the image. The activity of a block should be high for the true label and low for a wrong label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.errors import UsageError
from fa_registry.methods.base import CreditInputs, Method, MethodCard, NetworkShape, NetworkView, NoFeedback
from fa_registry.records import Option, Scalar


def states_of(network: NetworkView, images: Tensor) -> list[Tensor]:
    """Compute the states h_0..h_L for the images, with the network's current weights."""
    states = [network.embed(images)]
    for block in network.blocks:
        states.append(network.step(states[-1], block(states[-1])))
    return states


class ForwardForward(Method):
    card = MethodCard(
        name="forward_forward",
        rule="c_l is the gradient of a local loss, which trains the goodness of block l to be high for the true label and low "
        "for a wrong label",
        citation="Hinton 2022",
        bibtex="""@article{hinton2022forward,
  title={The forward-forward algorithm: some preliminary investigations},
  author={Hinton, Geoffrey},
  journal={arXiv preprint arXiv:2212.13345}, year={2022}
}""",
        equations="G(h) = mean_d h_d²; ℓ_l = softplus(θ − G(h_l⁺)) + softplus(G(h_l⁻) − θ), h⁺ from x with y written into its "
        "first C pixels, h⁻ with y′; c_l = ∂ℓ_l/∂h_l⁺ + ∂ℓ_l/∂h_l⁻ = (2/D)(σ(G⁻ − θ) h_l⁻ − σ(θ − G⁺) h_l⁺)",
        deviations=(
            "c_l is the sum of two credits, one from the pass with the true label and one from the pass with the wrong label. "
            "The block learns with this sum at the states of a third pass, the clean pass without a label. In the source, "
            "each pass trains "
            "the block at the states of that pass",
            "y′ is the wrong class with the highest probability in the clean pass; the paper draws y′ at random with these "
            "probabilities",
            "label pixels are 1 for the written class and 0 for the other classes, in units of the standardised image",
            "goodness is the mean square of the residual stream after block l, not of a layer's activations",
            "only the architecture's LayerNorm normalises the input of a block; the source normalises every input, because a "
            "block must not read the goodness of the previous block",
            "the head predicts from the last state of the clean pass and learns from the exact cross entropy. In the source, a "
            "fast linear classifier reads all hidden layers except the first. Goodness is never used to classify",
            "θ = 1; in the source, goodness is a sum of squares and θ is the number of units, which is 1 for the mean of squares",
        ),
        architectures=("resmlp", "mlp"),
        unsupported="the source writes the label into pixels that fully connected layers read; a convolution or attention would "
        "need another way to provide the label at all positions",
        unsupported_options={
            "norm_place=post": "the goodness of a state is its mean square, and a norm at the end of a block gives every state the "
            "same mean square"
        },
        gamma_reference="informational",
        exact_sites="none",
        feedback="none: the method needs two more forward passes",
        has_feedback=False,
        properties=("credit_ignores_blocks_above",),
        options={
            "threshold": Option(
                1.0,
                "θ, threshold of the goodness",
                "Hinton 2022, where goodness is a sum of squares and θ is the number of units",
                above=0,
            )
        },
        credit_scale_source="Hinton 2022: the loss is a function of one sample's goodness; no loss of the batch is differentiated",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Return a module without tensors that stores the threshold θ.

        Raises:
            UsageError: an image has fewer pixels than there are classes.
        """
        pixels = math.prod(shape.image)
        if pixels < shape.classes:
            raise UsageError(
                f"method 'forward_forward' writes a label into one pixel per class: expected images of at least {shape.classes} "
                f"pixels (one per class), found {pixels}"
            )
        module = NoFeedback()
        module.threshold = float(options["threshold"])
        return module

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = ∂ℓ_l/∂h⁺ + ∂ℓ_l/∂h⁻, (N, D_l), of the local losses ℓ_l.

        Raises:
            UsageError: the targets are real numbers, not classes.
        """
        if inputs.labels.is_floating_point():
            raise UsageError(
                "method 'forward_forward' needs class labels, but the targets of the data set are real numbers; "
                "use a data set with classes"
            )
        positive, negative = inputs.onehot, hardest_wrong(inputs)
        labelled_images = [with_label(inputs.images, rows) for rows in (positive, negative)]
        states = states_of(inputs.network, torch.cat(labelled_images))  # each (2 batch, hidden)
        return [local_slope(*state.chunk(2), feedback.threshold) for state in states]


def hardest_wrong(inputs: CreditInputs) -> Tensor:
    """Return the most probable wrong class of every sample as one-hot rows, (N, C).

    The probabilities are those of the forward pass without a label in the image.
    """
    probabilities = inputs.error + inputs.onehot
    # the entry of the true class is at most −1, so argmax never selects the true class
    wrong_classes = (probabilities - 2 * inputs.onehot).argmax(dim=1)
    # one_hot would copy the classes to the host to check them
    return torch.zeros_like(inputs.onehot).scatter_(1, wrong_classes[:, None], 1)


def with_label(images: Tensor, rows: Tensor) -> Tensor:
    """Return images (N, …) whose first C pixels are replaced by `rows` (N, C)."""
    pixels = images.flatten(1)
    return torch.cat([rows, pixels[:, rows.shape[1] :]], dim=1).reshape(images.shape)


def local_slope(positive: Tensor, negative: Tensor, threshold: float) -> Tensor:
    """Compute ∂ℓ/∂h⁺ + ∂ℓ/∂h⁻ of the local loss ℓ.

    Args:
        positive: states h⁺ with the true label, (N, D).
        negative: states h⁻ with a wrong label, (N, D).
        threshold: θ.
    """
    positive_goodness, negative_goodness = (
        state.square().mean(dim=1, keepdim=True) for state in (positive, negative)
    )  # goodness (batch, 1)
    push = (negative_goodness - threshold).sigmoid() * negative - (threshold - positive_goodness).sigmoid() * positive
    return push * (2 / positive.shape[1])


PLUGIN = ForwardForward()
