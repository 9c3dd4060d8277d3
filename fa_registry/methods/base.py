"""Interface of training methods. A method computes one credit per site.

The credits are functions of the inputs of one training step. A method contains no training loop.

Notation (N samples, D features, C classes, sites 0..L): the error e = softmax(z) − onehot(y), shape (N, C), belongs to the
*sum* of the samples' cross entropies, without 1/N. The credit c_l has the shape of the state h_l. If a state has positions, the
credit may also be (N, D), the credit of the average over positions. The credit has the sign of a gradient (a descent step moves
along −c_l) and the scale of g_l = ∂Σ_i ℓ_i/∂h_l. Block l maps site l−1 to site l and learns from c_l, the credit at its *output*.
Source: arXiv 2606.21126, except for the scale, which differs from method to method in the paper (MethodCard.credit_scale).

Sign, scale and site are easy to confuse, so tests check each of them. Sign: the loss decreases along −g and increases along +g
(tests/diagnostics/test_nudge.py). Scale: a sample's row of g_L is the same in batches of 1 and of 32
(tests/training/test_step.py). Site: with B_2 = I, the credit c_1 of fa is g_2, and Γ is 1 at site 2 but not at site 1
(tests/diagnostics/test_gamma.py).

A method declares special behaviour with small base classes. LearnsFeedbackByLoss: the feedback learns by a loss. HasFeedbackRule:
the feedback changes by another rule. UsesBackwardWeights: the backward pass uses other matrices than the weights. HasOwnStates:
the blocks learn at other states than those of the forward pass. HasAnchorSteps: rare steps train with the exact gradient.
HasOwnPrediction: the method predicts by itself, not by the head.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from fa_registry.errors import PluginError
from fa_registry.methods._card import (  # noqa: F401 - names of this module
    ALL_TASKS,
    EXACT_SITES,
    GAMMA_REFERENCES,
    SAMPLE_TASKS,
    MethodCard,
)
from fa_registry.records import Scalar
from fa_registry.tasks import Task, task_of
from fa_registry.token_axes import features


@dataclass(frozen=True)
class NetworkShape:
    """Shapes of a network, which determine the shapes of a feedback state.

    Args:
        sites: number of features D at every site 0..L.
        classes: number of classes C.
        image: shape of one input.
        weights: mapping from the name of a layer, such as `blocks.0.w1`, to the shape of its weight. The shape is (out, in) or,
            for a kernel, (out, in, height, width). The mapping contains the layers of the blocks and the head whose weight can
            be replaced in the backward pass.
    """

    sites: tuple[int, ...]
    classes: int
    image: tuple[int, ...] = ()
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """Number of blocks L, which is the number of sites minus one."""
        return len(self.sites) - 1


class NetworkView(Protocol):
    """Interface through which a method uses the network.

    The output of block l is `step(h, blocks[l−1](h))`, where h is h_{l−1}. The input of the head is `pool(h_L)`, (N, D_L). No
    gradient reaches the weights of the network.
    """

    embed: Callable[[Tensor], Tensor]  # images → h_0
    blocks: nn.ModuleList
    residual: bool

    def step(self, state: Tensor, branch: Tensor) -> Tensor:
        """Compute h_l from h_{l−1} and f_l(h_{l−1}).

        The result is their sum, or only f_l(h_{l−1}) if the network has no skips. The function is linear in both arguments.
        """

    def pool(self, state: Tensor) -> Tensor:
        """Compute the head's input, (N, D_L), from h_L.

        The shape of h_L is (N, D_L), (N, T, D_L) or (N, D_L, H, W).
        """

    def readout(self, state: Tensor) -> Tensor:
        """Compute the logits z, (N, C), from h_L before pooling."""

    def get_submodule(self, target: str) -> nn.Module:
        """Return a layer by its name in NetworkShape.weights.

        Raises:
            AttributeError: there is no layer with this name.
        """


@dataclass(frozen=True)
class CreditInputs:
    """The inputs on which a credit may depend in one step. All tensors are detached.

    A credit must not depend on `generator` and `progress`. Only feedback that learns may use these fields.

    Args:
        hidden: h_0..h_L, each (N, D_l), tokens (N, T, D_l) or maps (N, D_l, H, W), see fa_registry.token_axes.
        error: output error e, (N, C).
        onehot: labels as one-hot rows, (N, C).
        output_gradient: the exact gradient g_L in the shape of h_L, computed from the head only.
        gradients: g_0..g_L if an exact backward pass was run, as in measurements. None in local training.
        generator: random generator on the images' device.
        images: (N, …).
        labels: (N,).
        losses: ℓ_i, (N,).
        network: see NetworkView.
        progress: completed fraction of the training, 0 to 1, as a number or a scalar tensor. It changes between the replays of a
            captured step, so use it only in tensor operations.
        task: the task of the labels. The default is the built-in task that fits their type.
        scores: the scores of a method that predicts by itself (HasOwnPrediction), (N, C). None for any other method.
    """

    hidden: Sequence[Tensor]
    error: Tensor
    onehot: Tensor
    output_gradient: Tensor
    gradients: Sequence[Tensor] | None = None
    generator: torch.Generator | None = None
    images: Tensor | None = None
    labels: Tensor | None = None
    losses: Tensor | None = None
    network: NetworkView | None = None
    progress: Tensor | float = 0.0
    task: Task | None = None
    scores: Tensor | None = None

    @property
    def by_position(self) -> bool:
        """Whether the task has one target per position.

        For such a task, error and credits have the shape (N, T, …).
        """
        task = self.task or (None if self.labels is None else task_of(self.labels))
        return task is not None and task.by_position

    def losses_of(self, outputs: Tensor, labels: Tensor | None = None) -> Tensor:
        """Compute the losses ℓ_i, (N,), of given outputs.

        Args:
            outputs: z, (N, C).
            labels: labels of these outputs. The default is the labels of the batch.
        """
        labels = self.labels if labels is None else labels
        return (self.task or task_of(labels)).sample_losses(outputs, labels)

    def errors_of(self, outputs: Tensor) -> Tensor:
        """Compute the errors ∂ℓ_i/∂z_i, (N, C), of given outputs z (N, C) for the labels of the batch."""
        return (self.task or task_of(self.labels)).output_error(outputs, self.labels)


class Method(abc.ABC):
    """Base class of methods: a card, the initial feedback state, and the credit.

    A method object has no state. The feedback module contains all state.
    """

    card: MethodCard
    # True: one backward pass through all blocks trains the network. The only such built-in method is bp.
    end_to_end: bool = False

    @property
    def _replaces_weights(self) -> bool:
        """Whether the backward pass uses other matrices than the weights."""
        return isinstance(self, UsesBackwardWeights)

    @abc.abstractmethod
    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Create the feedback state of the method.

        Fixed matrices are buffers of the returned module, and learned networks are its parameters.

        Args:
            shape: sizes of the network, which determine the size of the feedback state.
            options: values of all options of the card, but an option that declares `omit_default` is missing if it has its
                default. The module must store every option that credits() needs, because credits() does not receive the options.
            generator: the source of all random numbers, on the CPU.

        Returns:
            A module. A run saves only its state dict and the options, which must be sufficient to recompute the credits.

        Raises:
            UsageError: the method does not support a network with these shapes.
        """

    @abc.abstractmethod
    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute the credits c_0..c_L of the summed loss, with the sign of a gradient.

        The docstring of the module defines sign, scale and shape of a credit. `credits` is called without grad mode. A rule that
        differentiates must enable grad mode itself.

        Args:
            feedback: the module that `feedback` created, in its current state. `credits` must not change it.
            inputs: one batch of N samples, detached.

        Returns:
            One credit per site, with the shape of the state or (N, D_l). For a state with P positions, (N, D_l) is the credit of
            the average over positions, and each position receives c/P. `check_credits` raises an error for any other shape.

        Raises:
            UsageError: the data set does not provide something that the rule needs.
            PluginError: the engine did not provide something that the rule needs.
        """


class LearnsFeedbackByLoss(abc.ABC):
    """Base class of a method whose feedback parameters learn by a loss.

    The optimiser, learning rate and weight decay of the network's recipe also apply to the feedback parameters.
    """

    @abc.abstractmethod
    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """Compute the loss of the feedback, a scalar tensor in the unit of the source.

        The graph of the loss must contain no parameters except those of the feedback. The engine calls `feedback_loss` once per
        step with grad mode on, after the network's gradients are computed and before any update. The recipe's optimiser minimises
        the loss without rescaling. With sgd, feedback therefore learns N times as fast from a sum over samples as from a mean.
        """


class HasFeedbackRule(abc.ABC):
    """Base class of a method that updates its feedback by a rule, such as a moving average."""

    @abc.abstractmethod
    def update_feedback(self, feedback: nn.Module, inputs: CreditInputs) -> None:
        """Update the feedback state in place, once per step.

        `update_feedback` is called without grad mode, after the optimiser has updated the weights.

        Args:
            feedback: the module to change.
            inputs: the inputs from which the credits of this step were computed. They belong to the weights before the update,
                except inputs.network, which has the updated weights. All random numbers must come from inputs.generator.
        """


class HasAnchorSteps(abc.ABC):
    """Base class of a method that trains on rare batches with the exact gradient.

    In an anchor step, c_l = g_l at every site. The engine computes g_l by a backward pass through all blocks, and normalises it as
    the credit of any other step. The card must describe the anchor steps in the field `anchor_steps`, which reporting forms show,
    and at most one step in ten may be an anchor step. The class cannot be combined with UsesBackwardWeights or HasOwnStates.
    """

    @abc.abstractmethod
    def anchor_every(self, options: Mapping[str, Scalar]) -> int:
        """Return the number T of epochs between two anchor steps, or 0 for no anchor steps.

        The first batch of the epochs T, 2T, …, counted from 0, is an anchor step. `options` are the method's options.
        """


class UsesBackwardWeights(abc.ABC):
    """Base class of a method that propagates errors back with other matrices than the weights."""

    @abc.abstractmethod
    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        """Return a mapping layer name → matrix B that replaces W in the backward pass.

        The backward pass computes dx = dy B instead of dx = dy W. Each matrix has the shape of its weight, (out, in) or, for a
        kernel, (out, in, 3, 3). It is not transposed. With B = W, the method is backpropagation
        (tests/architectures/test_layers.py, and the conformance check transposed_weights_give_bp). Source: Lillicrap et al. 2016,
        whose B replaces Wᵀ.
        """


@dataclass(frozen=True)
class CreditedStates:
    """The credits c_0..c_L of a batch, and the states at which the blocks learn with them.

    Credits, states and images may belong to K passes over the batch. They then have K·N rows, and pass k of sample i is row
    kN + i. The objective of a block is the sum over the passes.

    Args:
        credits: c_0..c_L, each (K·N, …).
        states: s_0..s_L, each (K·N, …) with the features of h_l, or None for h_0..h_L of the forward pass.
        images: inputs at which the embedding learns, (K·N, …), or None for the images of the batch.
    """

    credits: list[Tensor]
    states: Sequence[Tensor] | None = None
    images: Tensor | None = None

    def per_sample(self, count: int) -> list[Tensor]:
        """Return one credit per sample and site, (N, …): the sum over the passes. `count` is N."""
        return [
            credit if len(credit) == count or len(credit) % count else credit.unflatten(0, (-1, count)).sum(dim=0)
            for credit in self.credits
        ]


class HasOwnStates(abc.ABC):
    """Base class of a method that computes the states s_0..s_L at which its blocks learn.

    The objective of block l is J_l = Σ_k mean_i <f_l(s_{l-1})_ki, norm(c_l)_ki>, with one or more passes k over the batch. The
    penalty, the head, and the g_l with which credits are compared use the states of the forward pass. The embedding does so too,
    unless the method returns its own images. The engine runs each block a second time, at s_{l-1}. The class cannot be combined
    with UsesBackwardWeights.
    """

    @abc.abstractmethod
    def credits_and_states(self, feedback: nn.Module, inputs: CreditInputs) -> CreditedStates:
        """Compute the credits c_0..c_L, the states s_0..s_L, and the images of the embedding.

        The engine calls this function only, never `credits`. It measures the sum of the credits over the passes.
        """


class HasOwnPrediction(abc.ABC):
    """Base class of a method that predicts by itself.

    In each evaluation of a run, the scores replace the logits of the head. The head still learns from the exact cross entropy. The
    loss, the error e and the gradients g_l remain those of the head.
    """

    @abc.abstractmethod
    def scores(self, feedback: nn.Module, network: NetworkView, images: Tensor) -> Tensor:
        """Compute the scores of the classes, (N, C), in the place of the logits.

        A score must depend only on the sample's own input. `scores` is called in eval mode, without grad mode, and with a network
        that returns values without gradients. It must change neither the network nor the feedback.

        Args:
            feedback: the module that `feedback` created, in its current state.
            network: see NetworkView.
            images: (N, …).
        """


class Bridge(abc.ABC):
    """Base class of a method whose credit is the gradient of a value network V_φ.

    V_φ satisfies a recursion from site to site (arXiv 2606.21126).
    """

    @abc.abstractmethod
    def bridge_residuals(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute the residuals of the recursion at sites 0..L, (N,) each.

        The residuals are V_φ(h_l) − softmin_k V̄(h_{l+1} + σξ_k) for l < L, and V_φ(h_L) − ℓ at site L, in the unit of the loss.
        The residuals have a sign and are not averaged over samples. ξ is drawn from inputs.generator.
        """


class NoFeedback(nn.Module):
    """Empty feedback state, for methods without feedback."""


class FixedMatrices(nn.Module):
    """Feedback matrices B_1..B_L that never learn.

    The matrices are buffers with the names B_01, B_02, …
    """

    def __init__(self, matrices: Sequence[Tensor]):
        super().__init__()
        for index, matrix in enumerate(matrices, start=1):
            self.register_buffer(f"B_{index:02d}", matrix)

    def matrix(self, block: int) -> Tensor:
        """Return the matrix B_l of block l = `block`, 1..L.

        The shape is (D_l, C) for direct feedback and (D_l, D_{l−1}) for fa. Block l ends at site l, so direct feedback computes
        c_l with B_l.

        Raises:
            AttributeError: there is no such matrix.
        """
        return getattr(self, f"B_{block:02d}")


def check_credits(name: str, credits: Sequence[Tensor], hidden: Sequence[Tensor]) -> None:
    """Check that the credits have the shapes of the states.

    Args:
        name: name of the method, for the error message.
        credits: credits of sites 0..L.
        hidden: states h_0..h_L.

    Raises:
        PluginError: the number of credits or the shape of a credit is wrong.
    """
    if len(credits) != len(hidden):
        raise PluginError(
            f"method {name!r} returned {len(credits)} credits, expected one for each of the {len(hidden)} sites "
            f"(0..{len(hidden) - 1})"
        )
    for site, (credit, state) in enumerate(zip(credits, hidden, strict=True)):
        allowed_shapes = list(dict.fromkeys([tuple(state.shape), (len(state), features(state))]))
        if tuple(credit.shape) not in allowed_shapes:
            expected = " or ".join(map(str, allowed_shapes))
            raise PluginError(
                f"method {name!r}, site {site}: expected a credit of shape {expected}, found {tuple(credit.shape)}"
            )
