"""The contract of a training method: it computes one credit per site from the inputs of a step.

A method contains no training loop.

Notation (N samples, D features, C classes, sites 0..L): the error e = softmax(z) − onehot(y), shape (N, C), belongs to the
*sum* of the samples' cross entropies, without 1/N. The credit c_l has the state's shape. If a state has positions, the
credit may also be (N, D), the credit of the position average. It has gradient sign (a descent step moves along −c_l) and the
scale of g_l = ∂Σ_i ℓ_i/∂h_l. Block l maps site l−1 to site l and learns from c_l, the credit at its *output*. Source:
arXiv 2606.21126, except for the scale, which differs there from method to method (MethodCard.credit_scale).

Sign, scale and site are easy to get wrong, so tests check each of them. Sign: along −g the loss falls, along +g it
rises (tests/diagnostics/test_nudge.py). Scale: a sample's row of g_L is the same in a batch of 1 and of 32
(tests/training/test_step.py). Site: with B_2 = I the c_1 of fa is g_2, and Γ is 1 at site 2 and not at site 1
(tests/diagnostics/test_gamma.py).

A method declares special behaviour with the small classes below. Its feedback learns by a loss (LearnsFeedbackByLoss) or by
another rule (HasFeedbackRule). It replaces the weights that carry the error back (UsesBackwardWeights). Its blocks learn at
states other than those of the forward pass (HasOwnStates).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from fa_registry.deprecated_names import aliases
from fa_registry.errors import PluginError
from fa_registry.records import Option, Scalar
from fa_registry.token_axes import features

GAMMA_REFERENCES = ("bp", "gauss_newton", "informational", "none")
EXACT_SITES = ("none", "last", "all")
CREDIT_SCALES = ("sum", "mean")
REQUIRED = ("name", "rule", "citation", "bibtex", "equations", "architectures", "feedback")


@dataclass(frozen=True)
class MethodCard:
    """Description of a method. fa_registry.testing measures the declared `properties`.

    Args:
        deviations: differences from the source; forms number them in this order.
        architectures: catalog names, or ("any",).
        gamma_reference: the direction that Γ compares the credit with.
        exact_sites: sites whose credit is exact by construction: none, last (site L), all.
        feedback: description of the distribution of the feedback state.
        unsupported: sentence that explains why other architectures are refused.
        learned: whether the feedback learns. A fresh draw is then an untrained net, not an alternative feedback.
        credit_scale: the loss whose credit the source normalises: the samples' sum (an error e without 1/N) or their mean.
            Credits here always belong to the sum. The value only decides the unit of ε in norm(c): 1e-6 or N·1e-6.
        credit_scale_source: reference for credit_scale.
        version: for built-in methods; raised whenever a number of the method changes, so that old and new runs stay distinct.
        needs_autograd: whether credits() differentiates through `inputs.network`; forms show it. Otherwise the method gets a
            network that returns values without gradients (fa_registry.training.detached_network).
        may_reach_bp: whether the credit may become equal to the gradient while the feedback learns. An audit warns if the
            credit of any other method does.
    """

    name: str
    rule: str
    citation: str
    bibtex: str
    equations: str
    deviations: tuple[str, ...]
    architectures: tuple[str, ...]
    gamma_reference: str
    exact_sites: str
    feedback: str
    properties: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    unsupported: str = ""
    learned: bool = False
    credit_scale: str = "sum"
    credit_scale_source: str = ""
    version: int = 1
    needs_autograd: bool = False
    may_reach_bp: bool = False

    def __post_init__(self):
        problems = [name for name in REQUIRED if not getattr(self, name)]
        if self.gamma_reference not in GAMMA_REFERENCES:
            problems.append(f"gamma_reference (one of {', '.join(GAMMA_REFERENCES)})")
        if self.exact_sites not in EXACT_SITES:
            problems.append(f"exact_sites (one of {', '.join(EXACT_SITES)})")
        if self.credit_scale not in CREDIT_SCALES:
            problems.append(f"credit_scale (one of {', '.join(CREDIT_SCALES)})")
        if self.architectures and "any" not in self.architectures and not self.unsupported:
            problems.append("unsupported (why other architectures are refused)")
        if problems:
            raise PluginError(f"the card of method {self.name!r} lacks: {', '.join(problems)}")

    def is_exact(self, site: int, blocks: int) -> bool:
        """Return whether the credit at `site` (0..blocks) is g by construction, so that Γ = 1 is trivial."""
        return self.exact_sites == "all" or (self.exact_sites == "last" and site == blocks)

    @property
    def reaches_bp(self) -> bool:
        """Return whether the card declares that the credit is, approaches or may learn to equal the gradient."""
        return self.exact_sites == "all" or "approaches_bp" in self.properties or self.may_reach_bp

    def supports(self, architecture: str) -> bool:
        """Return whether the method may be trained on the architecture with this name."""
        return "any" in self.architectures or architecture in self.architectures


__all__ = [
    "EXACT_SITES",
    "GAMMA_REFERENCES",
    "Bridge",
    "CreditInputs",
    "FixedMatrices",
    "LearnsFeedbackByLoss",
    "Method",
    "MethodCard",
    "HasOwnStates",
    "NetworkShape",
    "NoFeedback",
    "UsesBackwardWeights",
    "NetworkView",
    "HasFeedbackRule",
    "check_credits",
]


@dataclass(frozen=True)
class NetworkShape:
    """The sizes of a network that determine the size of a feedback state.

    Args:
        sites: number of features D of every site 0..L.
        classes: C.
        image: shape of one input.
        weights: name of every replaceable layer of the blocks and the head (`blocks.0.w1`) → the shape of its weight,
            (out, in) or, for a kernel, (out, in, height, width).
    """

    sites: tuple[int, ...]
    classes: int
    image: tuple[int, ...] = ()
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """Return L, the number of sites minus one."""
        return len(self.sites) - 1


class NetworkView(Protocol):
    """The interface of the network for methods.

    Block l is `step(h, blocks[l−1](h))`; the head reads `pool(h_L)`, (N, D_L). The network's weights are constants: no gradient
    reaches them.
    """

    embed: Callable[[Tensor], Tensor]  # images → h_0
    blocks: nn.ModuleList
    residual: bool

    def step(self, state: Tensor, branch: Tensor) -> Tensor:
        """Return h_l from h_{l−1} and f_l(h_{l−1}): their sum, or the branch alone if there are no skips.

        The map is linear in both arguments.
        """

    def pool(self, state: Tensor) -> Tensor:
        """Return the head's input from h_L: (N, D_L), (N, T, D_L) or (N, D_L, H, W) → (N, D_L)."""

    def readout(self, state: Tensor) -> Tensor:
        """Return the logits z (N, C) of the unpooled h_L."""

    def get_submodule(self, target: str) -> nn.Module:
        """Return the layer named in NetworkShape.weights; raises AttributeError if there is none."""


@dataclass(frozen=True)
class CreditInputs:
    """Everything that a credit may depend on in a step; all tensors are detached.

    `generator` and `progress` are for learning feedback, never for a credit.

    Args:
        hidden: h_0..h_L, each (N, D_l), tokens (N, T, D_l) or maps (N, D_l, H, W); see fa_registry.token_axes.
        error: e (N, C).
        onehot: (N, C).
        output_gradient: g_L, shape of h_L, exact, computed from the head alone.
        gradients: g_0..g_L if the exact backward pass has been run (measuring); None while training locally.
        generator: on the images' device.
        images: (N, …).
        labels: (N,).
        losses: ℓ_i (N,).
        network: see NetworkView.
        progress: completed share of the training, 0 to 1, a number or (). Use it as a tensor: in a captured step it changes
            from replay to replay.
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


class Method(abc.ABC):
    """A method: its card, the initialisation of its feedback state, and its credit.

    A method is stateless: all state is in the feedback module.
    """

    card: MethodCard
    end_to_end: bool = False  # True: trained by one uncut backward pass (bp and nothing else)

    @abc.abstractmethod
    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """Return the feedback state: fixed matrices as buffers, learned nets as parameters.

        Args:
            shape: determines its size.
            options: values of all options of the card. The module must store every option that credits() needs, because
                credits() does not receive the options.
            generator: the source of all random numbers, on the CPU.

        Returns:
            A module. Its state dict and the options are all that a run has to save to recompute its credits.

        Raises:
            UsageError: the method cannot be used with this shape.
        """

    @abc.abstractmethod
    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Return c_0..c_L in gradient sign, of the summed loss (see the module's docstring).

        It is called without grad mode; a rule that differentiates enables it inside.

        Args:
            feedback: the current state of the module that `feedback` returned; it is not changed.
            inputs: one batch of N samples, detached.

        Returns:
            One credit per site, each of its state's shape or (N, D_l). For a state with P positions, (N, D_l) is the credit of
            the position average and enters each position as c/P. `check_credits` refuses a credit that does not fit its state.

        Raises:
            UsageError: the data set lacks something that the rule needs.
            PluginError: the engine did not provide something that the rule needs.
        """


class LearnsFeedbackByLoss(abc.ABC):
    """A Method whose feedback parameters learn by a loss, under the same recipe as the network."""

    @abc.abstractmethod
    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """Return a scalar loss, (), in the unit of the source, on the graph of the feedback parameters alone.

        The engine calls it once per step with grad mode on, when the network's gradients are filled and before any update.
        The recipe's optimiser minimises it without rescaling: under sgd a sum over samples learns N times as fast as their
        mean.
        """


class HasFeedbackRule(abc.ABC):
    """A Method that updates its feedback state by a rule: moving averages, mirroring, redrawing."""

    @abc.abstractmethod
    def update_feedback(self, feedback: nn.Module, inputs: CreditInputs) -> None:
        """Change the state in place, once per step, after the optimiser has updated the weights.

        It is called without grad mode.

        Args:
            feedback: the module to change.
            inputs: the inputs of the credits, from before the update. Only inputs.network has the updated weights. A rule that
                needs random numbers must draw them from inputs.generator.
        """


class UsesBackwardWeights(abc.ABC):
    """A Method that carries the error back through matrices other than the network's weights."""

    @abc.abstractmethod
    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        """Return layer name → the matrix B that replaces its weight W in the backward pass.

        The backward pass computes dx = dy B, not dy W. Each matrix has its weight's shape, (out, in) or, for a kernel,
        (out, in, 3, 3), and is not transposed. With B = W this is backpropagation (tests/architectures/test_layers.py; the
        conformance check transposed_weights_give_bp).
        Source: Lillicrap et al. 2016, where B denotes the replacement of the transpose of W.
        """


class HasOwnStates(abc.ABC):
    """A Method whose blocks learn at states s_0..s_L that it computes.

    The objective of block l is J_l = mean_i <f_l(s_{l-1})_i, norm(c_l)_i>. Everything else comes from the forward pass: the
    embedding's output, the penalty's f_l(h_{l-1}), the head's h_L, and the g_l that credits are compared with. The engine runs
    each block once more, at s_{l-1}. The class cannot be combined with UsesBackwardWeights.
    """

    @abc.abstractmethod
    def credits_and_states(self, feedback: nn.Module, inputs: CreditInputs) -> tuple[list[Tensor], Sequence[Tensor]]:
        """Return c_0..c_L, as `credits` returns them, and s_0..s_L, each of its state's shape.

        The states are `inputs.hidden` itself if the blocks learn at the forward pass.
        """


class Bridge(abc.ABC):
    """A Method whose credit is the gradient of a value net V_φ.

    V_φ satisfies a recursion from site to site (arXiv 2606.21126).
    """

    @abc.abstractmethod
    def bridge_residuals(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Return the residuals of sites 0..L, (N,) each, in the loss's unit.

        They are V_φ(h_l) − softmin_k V̄(h_{l+1} + σξ_k), and V_φ(h_L) − ℓ at site L: signed, one per sample, not averaged.
        inputs.generator draws ξ; inputs.gradients are given.
        """


class NoFeedback(nn.Module):
    """An empty feedback state, for methods without feedback."""


class FixedMatrices(nn.Module):
    """Feedback matrices B_1..B_L that never learn, stored as buffers named B_01, B_02, …"""

    def __init__(self, matrices: Sequence[Tensor]):
        super().__init__()
        for index, matrix in enumerate(matrices, start=1):
            self.register_buffer(f"B_{index:02d}", matrix)

    def matrix(self, block: int) -> Tensor:
        """Return B_block for block 1..L: (D_l, C) for direct feedback, (D_l, D_{l−1}) for fa.

        The number is that of the site at the block's output, so that B_l and c_l of direct feedback have the same l. Raises
        AttributeError if there is no such matrix.
        """
        return getattr(self, f"B_{block:02d}")


def check_credits(name: str, credits: Sequence[Tensor], hidden: Sequence[Tensor]) -> None:
    """Raise PluginError with method, site and both shapes if a credit does not fit its state."""
    if len(credits) != len(hidden):
        raise PluginError(
            f"method {name!r} returned {len(credits)} credits for {len(hidden)} sites (0..{len(hidden) - 1})"
        )
    for site, (credit, state) in enumerate(zip(credits, hidden, strict=True)):
        fits = list(dict.fromkeys([tuple(state.shape), (len(state), features(state))]))
        if tuple(credit.shape) not in fits:
            expected = " or ".join(map(str, fits))
            raise PluginError(
                f"method {name!r}, site {site}: credit of shape {tuple(credit.shape)}, expected {expected}"
            )


__getattr__ = aliases(__name__)
