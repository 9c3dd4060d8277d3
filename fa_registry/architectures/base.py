"""Interface of architectures: networks with one residual stream and a stack of blocks.

    h_0 = embed(x),  h_l = h_{l-1} + f_l(h_{l-1})  (or f_l(h_{l-1}) without skips),  z = out_head(out_ln(pool(h_L)))

A block returns its residual branch f_l, and the network adds the skip. The position of the skip is therefore always known.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fa_registry.architectures._card import TOKENS, VALUES, ArchitectureCard  # noqa: F401 - names of this module
from fa_registry.architectures._stream import norm_name, recorded_streams, stream_of  # noqa: F401 - names of this module
from fa_registry.errors import Problem
from fa_registry.records import Scalar
from fa_registry.tasks import Task
from fa_registry.token_axes import broadcast_over_positions

READOUT = ("out_ln", "out_head")


def identity(state: Tensor) -> Tensor:
    """Return the state unchanged, as the `pool` of networks with states (batch, hidden)."""
    return state


class Network(nn.Module):
    """Network with the parts embed, blocks, out_ln and out_head, named as in the published code.

    Args:
        embed: Module that computes h_0, or None if a subclass defines a method `embed`. A subclass needs this method if published
            checkpoints contain the layers of the embedding at their top level.
        blocks: Modules that compute the branches f_1..f_L.
        out_ln: Normalisation before the head, or None.
        out_head: Module that computes the logits.
        residual: Whether h_l = h_{l-1} + f_l(h_{l-1}). If False, h_l = f_l(h_{l-1}).
        pool: Function from the state h_L to features (batch, features), applied before out_ln.
    """

    def __init__(
        self,
        embed: nn.Module | None,
        blocks: list[nn.Module],
        out_ln: nn.Module | None,
        out_head: nn.Module,
        residual: bool = True,
        pool: Callable[[Tensor], Tensor] = identity,
    ):
        super().__init__()
        if embed is not None:
            self.embed = embed
        self.blocks = nn.ModuleList(blocks)
        self.out_ln = out_ln
        self.out_head = out_head
        self.residual = residual
        self.pool = pool

    @property
    def first_credited(self) -> int:
        """First site whose credit trains a parameter: site 0, or site 1 if the embedding has no parameters."""
        return 0 if any(part_of(name) == "embed" for name, _ in self.named_parameters()) else 1

    def step(self, state: Tensor, branch: Tensor) -> Tensor:
        """Return h_l = h_{l-1} + f_l, or h_l = f_l in a network without skips.

        Args:
            state: State h_{l-1}.
            branch: Branch f_l, with the shape of the state.
        """
        return state + branch if self.residual else branch

    def spread(self, credit: Tensor, state: Tensor) -> Tensor:
        """Expand a credit to the shape of the state, with c/P at each of the P positions.

        A credit that already has positions is returned unchanged. tests/training/test_step.py compares the result with the gradient
        of <mean of the state over positions, c> from autograd.

        Args:
            credit: Credit c (N, D), or a credit in the shape of the state.
            state: State h_l.
        """
        return broadcast_over_positions(credit, state)

    def readout(self, state: Tensor) -> Tensor:
        """Apply pooling, normalisation and head to h_L, and return the logits (batch, classes)."""
        features = self.pool(state)
        return self.out_head(features if self.out_ln is None else self.out_ln(features))

    def hidden(self, x: Tensor) -> list[Tensor]:
        """Return the L+1 states h_0..h_L for inputs x (batch, …), connected in one autograd graph.

        h_l is the output of block l, which is blocks[l−1].
        """
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(self.step(states[-1], block(states[-1])))
        return states

    def site_calls(self) -> Iterator[tuple[int, nn.Module, int, str]]:
        """Yield tuples (site l, block l, 1, name of the norm that ends the block); see `_stream.SiteCalls`."""
        for site, block in enumerate(self.blocks, start=1):
            yield site, block, 1, norm_name(block)

    def logits_from(self, site: int, state: Tensor) -> Tensor:
        """Return the logits (batch, classes) that follow from the state at one site.

        The function applies the blocks above the site, and the readout.

        Args:
            site: Site from 0 to L.
            state: State at this site.
        """
        # blocks are numbered from 1 and the list from 0, so blocks[site] is the block *above* this site: none at site L
        for block in self.blocks[site:]:
            state = self.step(state, block(state))
        return self.readout(state)

    def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Return the logits (batch, classes). With return_hidden, also return the states h_0..h_L."""
        states = self.hidden(x)
        logits = self.readout(states[-1])
        return (logits, states) if return_hidden else logits


def part_of(name: str) -> str:
    """Return the part of a Network that contains a module or tensor: "blocks.N", "readout" or "embed".

    All names outside the blocks and the readout belong to "embed".
    """
    first, *rest = name.split(".")
    if first == "blocks":
        return ".".join([first, *rest[:1]])
    return "readout" if first in READOUT else "embed"


class Noisy(nn.Module):
    """Block with process noise. The training loop sets the generator of the noise for each epoch.

    Without a generator there is no noise.
    """

    noise: torch.Generator | None = None

    def noise_like(self, state: Tensor) -> Tensor:
        """Return standard normal noise in the shape of the state, or zeros if no generator is set."""
        if self.noise is None:
            return torch.zeros_like(state)
        return torch.randn(state.shape, generator=self.noise, device=state.device, dtype=state.dtype)


@contextmanager
def noisy(network: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Context manager: let every Noisy block draw its noise from `generator`."""
    blocks = [module for module in network.modules() if isinstance(module, Noisy)]
    for block in blocks:
        block.noise = generator
    try:
        yield
    finally:
        for block in blocks:
            block.noise = None


class ExactCostate(abc.ABC):
    """Interface of networks whose costates have a formula and can be computed without autograd."""

    @abc.abstractmethod
    def costates(self, x: Tensor, y: Tensor, task: Task | None = None) -> list[Tensor]:
        """Return λ_l = ∂(Σ_i terminal loss_i)/∂h_l for l = 0..L, computed without autograd.

        Each costate has the shape of its state and the sign of the gradient. It is not divided by N. The process noise is off.

        Args:
            x: Inputs (N, …).
            y: Classes (N,) or values (N, C).
            task: Task of y, or None for the built-in task that fits the type of y.
        """


class Architecture(abc.ABC):
    """Base class of an architecture: a card, and the function that builds a network."""

    card: ArchitectureCard

    @abc.abstractmethod
    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network on the CPU, in training mode and in float32, with initial weights from `generator`.

        Use the functions of _layers, because the constructors of torch use the global generator. `build` may assume that `check`
        found no problem.

        Args:
            options: Values of all options.
            image_shape: Shape of one input. For images: (channels, height, width).
            classes: Number of classes C, which is the width of the logits.
            generator: Random number generator of the weights.
        """

    def check(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...]) -> list[Problem]:
        """Return the problems of the options for images of this shape; by default an empty list."""
        return []

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        """Return the number of parameters of the network without building it.

        Returns:
            The number, or 0 if the architecture does not count its parameters. The base class returns 0.
        """
        return 0

    def trains(self, options: Mapping[str, Scalar]) -> bool:
        """Return whether training may change a weight of the network."""
        return True

    def resolve(self, options: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the values of all options. An option that is not given has the default of the card."""
        return self.card.resolve(options)
