"""Method forward_forward: each block learns to distinguish true labels from wrong labels.

The label is written into the image. The goodness of a block, the mean square of its state, should be high for the true label and
low for a wrong label. The method predicts the label with the highest goodness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from fa_registry.errors import UsageError
from fa_registry.methods.base import (
    CreditedStates,
    CreditInputs,
    HasOwnPrediction,
    HasOwnStates,
    Method,
    MethodCard,
    NetworkShape,
    NetworkView,
    NoFeedback,
)
from fa_registry.records import Option, Scalar

EPSILON = 1e-6  # lets a state of zeros stay zero


class ForwardForward(Method, HasOwnStates, HasOwnPrediction):
    card = MethodCard(
        name="forward_forward",
        version=2,  # each pass trains at its own normalised states; goodness predicts
        rule="c_l is the gradient of a local loss, which trains the goodness of block l to be high for the true label and low "
        "for a wrong label; the label with the highest goodness is the prediction",
        citation="Hinton 2022",
        bibtex="""@article{hinton2022forward,
  title={The forward-forward algorithm: some preliminary investigations},
  author={Hinton, Geoffrey},
  journal={arXiv preprint arXiv:2212.13345}, year={2022}
}""",
        equations="x_k is the image whose first C pixels are 1 for class k and 0 for all other classes. h_0 = embed(x_k), "
        "s_l = h_l/(rms(h_l) + 1e-6), h_l = step(s_{l-1}, f_l(s_{l-1})): every block reads a state of length √D. "
        "G_l(x_k) = mean_d h_{l,d}² (section 2). Positive pass: k = y, c_l = −(2/D) σ(θ − G_l) h_l, the gradient of "
        "softplus(θ − G_l). Negative pass: k = y′, c_l = (2/D) σ(G_l − θ) h_l, the gradient of softplus(G_l − θ) (equation 1). "
        "Block l learns with both credits, each at s_{l-1} in the same pass. Scores: z_k = Σ_{l ≥ first_block} G_l(x_k) "
        "(section 3.3); y′ = argmax_{k ≠ y} z_k",
        deviations=(
            "y′ is the wrong class with the highest score of the method itself. The paper draws y′ in proportion to the "
            "probabilities of a softmax classifier that reads a pass with a neutral label",
            "credit_norm=rms, the default recipe, divides the credit of each pass by its own rms, which removes σ and so θ; "
            "credit_norm=none is the paper's rule. On mlp (2×256, digits, 30 epochs, seeds 42, 123, 456), rms reaches .636 to .722 "
            "and none .158 to .194",
            "label pixels are 1 for the written class and 0 for the other classes, in units of the standardised image",
            "with skips, h_l contains the normalised stream, and goodness is that of the sum, not of a layer's activations",
            "an embedding with weights is one more layer: it reads the labelled image as it is, and its goodness never counts in "
            "the prediction",
            "θ = 1; in the source, goodness is a sum of squares and θ is the number of units, which is 1 for the mean of squares",
            "the head learns from the exact cross entropy of the forward pass without a label, as in every method, but never "
            "predicts. loss_train, and g_l with which Γ compares the credit, belong to this head and pass. The credit that is "
            "measured is the sum of both passes",
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
        feedback="none: the method needs one more forward pass per class, and two with which it learns",
        has_feedback=False,
        properties=("credit_ignores_blocks_above",),
        options={
            "threshold": Option(
                1.0,
                "θ, threshold of the goodness",
                "Hinton 2022, where goodness is a sum of squares and θ is the number of units",
                above=0,
            ),
            "first_block": Option(
                2,
                "first block whose goodness counts in the prediction; a network with fewer blocks uses its last block. On mlp "
                "(2×256, digits, 30 epochs, seeds 42, 123, 456), 2 reaches .636 to .722 and 1 reaches .814 to .825",
                "Hinton 2022, section 3.3: all hidden layers but the first",
                least=1,
            ),
        },
        credit_scale_source="Hinton 2022: the loss is a function of one sample's goodness; no loss of the batch is differentiated",
        prediction="the class k with the highest Σ_l G_l(x_k), the goodness of all blocks from first_block on",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Return a module without tensors that stores θ, C and the first block that predicts.

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
        module.threshold, module.classes = float(options["threshold"]), shape.classes
        module.first_block = min(int(options["first_block"]), shape.blocks)
        return module

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return self.credits_and_states(feedback, inputs).per_sample(len(inputs.images))

    def credits_and_states(self, feedback: nn.Module, inputs: CreditInputs) -> CreditedStates:
        """Compute c_l = ∂ℓ_l/∂h_l and s_l of both passes, (2N, D_l): the positive pass first.

        Raises:
            UsageError: the targets are real numbers, not classes.
        """
        if inputs.labels.is_floating_point():
            raise UsageError(
                "method 'forward_forward' needs class labels, but the targets of the data set are real numbers; "
                "use a data set with classes"
            )
        rows = (inputs.onehot, hardest_wrong(inputs.scores, inputs.onehot))
        images = torch.cat([with_label(inputs.images, labels) for labels in rows])
        states = list(normalised_pass(inputs.network, images))  # each (2 batch, hidden)
        slopes = [local_slope(state, feedback.threshold) for state in states]
        return CreditedStates(slopes, [normalised(state) for state in states], images)

    def scores(self, feedback: nn.Module, network: NetworkView, images: Tensor) -> Tensor:
        """Compute the summed goodness z_k of every class, (N, C)."""
        classes = torch.eye(feedback.classes, dtype=images.dtype, device=images.device)
        labelled = (with_label(images, label.expand(len(images), -1)) for label in classes)
        return torch.stack([self._goodness(feedback, network, each) for each in labelled], dim=1)

    def _goodness(self, feedback: nn.Module, network: NetworkView, images: Tensor) -> Tensor:
        """Sum the goodness of the blocks from `first_block` on, (N,)."""
        states = list(normalised_pass(network, images))[feedback.first_block :]
        return torch.stack([goodness(state) for state in states]).sum(dim=0)


def normalised_pass(network: NetworkView, images: Tensor) -> Iterator[Tensor]:
    """Yield h_0..h_L, where every block reads the normalised state below it."""
    state = network.embed(images)
    yield state
    for block in network.blocks:
        below = normalised(state)
        state = network.step(below, block(below))
        yield state


def normalised(state: Tensor) -> Tensor:
    """Return s = h/(rms(h) + ε), (N, D). A block that reads s cannot read the goodness of the block below."""
    return state / (goodness(state).sqrt() + EPSILON)[:, None]


def goodness(state: Tensor) -> Tensor:
    """Return G = mean_d h_d², (N,)."""
    return state.square().mean(dim=1)


def hardest_wrong(scores: Tensor, onehot: Tensor) -> Tensor:
    """Return the wrong class with the highest score of every sample as one-hot rows, (N, C)."""
    wrong_classes = scores.masked_fill(onehot > 0, -math.inf).argmax(dim=1)
    # one_hot would copy the classes to the host to check them
    return torch.zeros_like(onehot).scatter_(1, wrong_classes[:, None], 1)


def with_label(images: Tensor, rows: Tensor) -> Tensor:
    """Return images (N, …) whose first C pixels are replaced by `rows` (N, C)."""
    pixels = images.flatten(1)
    return torch.cat([rows, pixels[:, rows.shape[1] :]], dim=1).reshape(images.shape)


def local_slope(states: Tensor, threshold: float) -> Tensor:
    """Compute ∂ℓ/∂h of the local losses softplus(θ − G(h⁺)) and softplus(G(h⁻) − θ).

    Args:
        states: h⁺ with the true label, followed by h⁻ with a wrong label, (2N, D).
        threshold: θ.
    """
    sign = torch.ones_like(states[:, :1])  # (2 batch, 1)
    sign[: len(states) // 2] = -1
    push = sign * (sign * (goodness(states)[:, None] - threshold)).sigmoid()
    return push * states * (2 / states.shape[1])


PLUGIN = ForwardForward()
