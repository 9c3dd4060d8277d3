"""The contract of a training method: it turns what a step knows into one credit a site. It never owns a loop.

Notation (N samples, D features, C classes, sites 0..L): error e = softmax(z) − onehot(y), shape (N, C), of the *sum* of the
samples' cross entropies, no 1/N. The credit c_l has the state's shape (or, where a state has positions, (N, D): that of the
position average), gradient sign (a descent step moves along −c_l) and the scale of g_l = ∂Σ_i ℓ_i/∂h_l. Block l, from site
l−1 to l, learns from c_l, the credit at its *output*. Source: arXiv 2606.21126, but for the scale, which there differs
from method to method (MethodCard.credit_scale).

Each of these is easy to get wrong, so each is checked where it shows. Sign: along the gradient the loss falls, against it it
rises (tests/diagnostics/test_nudge.py). Scale: a sample's row of g_L is the same in a batch of 1 and of 32
(tests/training/test_step.py). Site: with B_2 = I fa's c_1 is g_2, and Γ is 1 at site 2 and not at site 1
(tests/diagnostics/test_gamma.py).

A method whose feedback learns says how by one of the small classes below: by a loss (LearnsFeedbackByLoss), by a rule of its own
(HasFeedbackRule). One that replaces the weights an error travels back through says which (UsesBackwardWeights). One
whose blocks learn at other states than the forward pass's says at which (HasOwnStates).
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
    """`properties` are declared here and measured by fa_registry.testing.

    deviations: what differs from the source, numbered in this order. architectures: catalog names, or ("any",). unsupported: why
    the others are refused, a sentence. gamma_reference: what Γ compares the credit with and means. exact_sites: sites whose credit
    is exact by construction: none, last (site L), all. feedback: the distribution of the feedback state, in words. learned: the
    feedback learns, so that a fresh draw of it is an untrained net and no other feedback.
    credit_scale: of which loss the source holds its credit when it normalises it, of the samples' sum (an error e without 1/N) or
    of their mean. Credits here are always of the sum; what the word decides is the unit of norm(c)'s ε, 1e-6 or N·1e-6.
    credit_scale_source: where that is known from.
    needs_autograd: credits() differentiates through `inputs.network`. Without it a credit rule gets a network that gives values
    and no gradients (fa_registry.training.detached_network). Forms show it.
    may_reach_bp: the credit may come to equal the gradient while the feedback learns. An audit warns of any other method whose
    credit does.
    version: of a method of our own; raised whenever one of its numbers changes, so that no run of the old code is taken for one of
    the new.
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
        """Whether the credit at `site` (0..blocks) equals g by construction, so that its Γ = 1 says nothing."""
        return self.exact_sites == "all" or (self.exact_sites == "last" and site == blocks)

    @property
    def reaches_bp(self) -> bool:
        """Whether the card declares that the credit is the gradient, approaches it, or may learn to equal it."""
        return self.exact_sites == "all" or "approaches_bp" in self.properties or self.may_reach_bp

    def supports(self, architecture: str) -> bool:
        """Whether the method may be trained on the architecture of this name."""
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
    """What a feedback state is sized by.

    sites: features D of every site 0..L; classes: C. image: shape of one input. weights: name of every replaceable layer of the
    blocks and the head (`blocks.0.w1`) → the shape of its weight, (out, in) or a kernel's (out, in, height, width).
    """

    sites: tuple[int, ...]
    classes: int
    image: tuple[int, ...] = ()
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """L: one fewer than the sites 0..L."""
        return len(self.sites) - 1


class NetworkView(Protocol):
    """The network as a method sees it: block l is `step(h, blocks[l−1](h))`, the head reads `pool(h_L)`, (N, D_L).

    Its weights are held: no gradient reaches them.
    """

    embed: Callable[[Tensor], Tensor]  # images → h_0
    blocks: nn.ModuleList
    residual: bool

    def step(self, state: Tensor, branch: Tensor) -> Tensor:
        """h_l of h_{l−1} and f_l(h_{l−1}), linear in both: their sum, or the branch alone without skips."""

    def pool(self, state: Tensor) -> Tensor:
        """What the head reads of h_L: (N, D_L), (N, T, D_L) or (N, D_L, H, W) → (N, D_L)."""

    def readout(self, state: Tensor) -> Tensor:
        """Logits z (N, C) of h_L, unpooled."""

    def get_submodule(self, target: str) -> nn.Module:
        """The layer of a name of NetworkShape.weights; raises AttributeError where there is none."""


@dataclass(frozen=True)
class CreditInputs:
    """What a step knows, detached: everything a credit may depend on.

    hidden: h_0..h_L, each (N, D_l), tokens (N, T, D_l) or maps (N, D_l, H, W): see fa_registry.token_axes. error, onehot: (N, C).
    output_gradient: g_L, of h_L's shape, exact, from the head alone.
    gradients: g_0..g_L where someone already ran the exact backward pass (measuring); None while training locally.
    images (N, …), labels (N,), losses ℓ_i (N,). network: see Stream. The two below are for learning feedback, never for a credit:
    generator, on the images' device; progress: share of the training that is done, 0 to 1, a number or (), to be used as a
    tensor: in a captured step it changes from replay to replay.
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
    """A method: a card, how its feedback state is drawn, and its credit. Pure: all state is in the feedback module."""

    card: MethodCard
    end_to_end: bool = False  # True: trained by one uncut backward pass (bp and nothing else)

    @abc.abstractmethod
    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        """The feedback state, drawn on the CPU from `generator`: fixed matrices as buffers, learned nets as parameters.

        shape: what it is sized by. options: the card's, complete. Returns a module whose state dict is, with the options, all that
        a run has to save to compute its credits again. Raises UsageError where the shape cannot be served.
        An option that credits() needs belongs into the module: nobody hands the options over again.
        """

    @abc.abstractmethod
    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """c_0 .. c_L, each of its state's shape or (N, D_l): in gradient sign, of the summed loss, see the top of this file.

        feedback: what `feedback` returned, as it is now; it is read and not changed. inputs: one batch of N samples, detached.
        (N, D_l) of a state with P positions is the credit of the
        position average, and enters each position as c/P. Raises what the rule needs and is not given: UsageError for a data
        set, PluginError for an engine. `check_credits` refuses what fits no state.
        Called without grad mode; a rule that differentiates switches it on inside.
        """


class LearnsFeedbackByLoss(abc.ABC):
    """A Method whose feedback's parameters learn by a loss, beside the network, under the same recipe."""

    @abc.abstractmethod
    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """A scalar, (), on the graph of the feedback's parameters alone, in whatever unit the source has it.

        Asked once a step with grad mode on, when the network's own gradients are filled and nothing has moved yet. The recipe's
        optimiser descends on it as it is: under sgd a sum over samples learns N times as fast as their mean.
        """


class HasFeedbackRule(abc.ABC):
    """A Method whose feedback state changes by a rule of its own: moving averages, mirroring, redrawing."""

    @abc.abstractmethod
    def update_feedback(self, feedback: nn.Module, inputs: CreditInputs) -> None:
        """Change the state in place, without grad mode, once a step after the optimiser has moved the weights.

        inputs: those of the credits, of before the move; inputs.network is as it is after it. inputs.generator is what a rule
        that draws has to draw from.
        """


class UsesBackwardWeights(abc.ABC):
    """A Method that carries the error back through other matrices than the network's weights."""

    @abc.abstractmethod
    def backward_weights(self, feedback: nn.Module, network: NetworkView) -> Mapping[str, Tensor]:
        """Layer name → the matrix that stands in for its weight when an error passes back: dx = dy B, not dy W.

        Each of its weight's shape, (out, in) or a kernel's (out, in, 3, 3), and not transposed: with B = W this is
        backpropagation (tests/architectures/test_layers.py; the conformance check transposed_weights_give_bp).
        Source: Lillicrap et al. 2016, where B stands for the transpose of W.
        """


class HasOwnStates(abc.ABC):
    """A Method whose blocks learn at states s_0..s_L of its own: J_l = mean_i <f_l(s_{l-1})_i, norm(c_l)_i>.

    Everything else stays the forward pass's: the embedding's output, the penalty's f_l(h_{l-1}), the head's h_L, and the g_l that
    credits are compared with. The engine runs each block once more, at s_{l-1}. Not together with UsesBackwardWeights.
    """

    @abc.abstractmethod
    def credits_and_states(self, feedback: nn.Module, inputs: CreditInputs) -> tuple[list[Tensor], Sequence[Tensor]]:
        """c_0..c_L, the same as `credits` returns, and s_0..s_L, each of its state's shape; `inputs.hidden` itself where the
        blocks learn at the forward pass after all."""


class Bridge(abc.ABC):
    """A Method whose credit is the slope of a value net V_φ that obeys a recursion from site to site (arXiv 2606.21126)."""

    @abc.abstractmethod
    def bridge_residuals(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Per site 0..L and sample, (N,) each, in the loss's unit: V_φ(h_l) − softmin_k V̄(h_{l+1} + σξ_k), and at L V_φ(h_L) − ℓ.

        Signed, a sample's own and no mean. inputs.generator draws ξ; inputs.gradients are given.
        """


class NoFeedback(nn.Module):
    """The feedback state of a method that has none."""


class FixedMatrices(nn.Module):
    """Feedback matrices B_1..B_L that never learn, stored as buffers named B_01, B_02, …"""

    def __init__(self, matrices: Sequence[Tensor]):
        super().__init__()
        for index, matrix in enumerate(matrices, start=1):
            self.register_buffer(f"B_{index:02d}", matrix)

    def matrix(self, block: int) -> Tensor:
        """B_block for block 1..L, (D_l, C) of direct feedback or (D_l, D_{l−1}) of fa; AttributeError where there is none.

        Numbered by the site at the block's output, so that B_l and c_l of direct feedback share their l.
        """
        return getattr(self, f"B_{block:02d}")


def check_credits(name: str, credits: Sequence[Tensor], hidden: Sequence[Tensor]) -> None:
    """Raise PluginError naming method, site and both shapes when a credit does not fit its state."""
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
