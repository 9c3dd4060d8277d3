"""The contract of an architecture: a stack of blocks around one stream, and how to build it.

    h_0 = embed(x),  h_l = h_{l-1} + f_l(h_{l-1})  (or f_l(h_{l-1}) without skips),  z = out_head(out_ln(pool(h_L)))

A block returns its residual branch f_l; the network adds the skip, so the position of the skip is always known.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fa_registry.records import Option, Scalar
from fa_registry.token_axes import broadcast_over_positions

READOUT = ("out_ln", "out_head")


@dataclass(frozen=True)
class ArchitectureCard:
    """The description of an architecture.

    Attributes:
        version: of a built-in architecture; raised whenever its initial weights or its forward pass change.
        credit_options: the options that only choose where a credit goes and do not change the network. They have no effect if
            errors go back end to end: two such runs that differ only in these options have the same weights.
    """

    name: str
    line: str
    options: Mapping[str, Option]
    source: str
    version: int = 1
    credit_options: tuple[str, ...] = ()


def identity(state: Tensor) -> Tensor:
    """Return the state unchanged: the pool of feature states (batch, hidden)."""
    return state


class Network(nn.Module):
    """embed, blocks, out_ln, out_head around one stream, with the published code's attribute names.

    Args:
        embed: None in a subclass that defines it as a method over several layers. This is needed where the published code has
            no module `embed`, so that the layers' names are at the top level of its checkpoints.
        residual: whether h_l = h_{l-1} + f_l(h_{l-1}).
        pool: state → (batch, features), applied before out_ln.
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
        """Return the first site whose credit trains a parameter: 1 if site 0 is the input, else 0."""
        return 0 if any(part_of(name) == "embed" for name, _ in self.named_parameters()) else 1

    def step(self, state: Tensor, branch: Tensor) -> Tensor:
        """Return h_l: h_{l-1} + f_l, or f_l alone without skips; all have the same shape."""
        return state + branch if self.residual else branch

    def spread(self, credit: Tensor, state: Tensor) -> Tensor:
        """Return a credit (N, D) in the state's shape, c/P at each of its P positions.

        Checked against autograd of <position average, c> in tests/training/test_step.py. A credit with positions is returned as is.
        """
        return broadcast_over_positions(credit, state)

    def readout(self, state: Tensor) -> Tensor:
        """Return the logits (batch, classes) of h_L: pooling, normalisation, head."""
        features = self.pool(state)
        return self.out_head(features if self.out_ln is None else self.out_ln(features))

    def hidden(self, x: Tensor) -> list[Tensor]:
        """Return h_0 .. h_L of inputs x (batch, …), L+1 states connected by one graph.

        h_l is the output of block l, blocks[l−1].
        """
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(self.step(states[-1], block(states[-1])))
        return states

    def logits_from(self, site: int, state: Tensor) -> Tensor:
        """Return the logits (batch, classes) of a stream whose state at `site` (0..L) is `state`.

        Blocks site+1..L and the readout are applied.
        """
        # blocks are numbered from 1 and the list from 0, so blocks[site] is the block *above* this site: none at site L
        for block in self.blocks[site:]:
            state = self.step(state, block(state))
        return self.readout(state)

    def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Return the logits (batch, classes); with return_hidden also the states h_0 .. h_L."""
        states = self.hidden(x)
        logits = self.readout(states[-1])
        return (logits, states) if return_hidden else logits


def part_of(name: str) -> str:
    """Return the part of a Network that has this module or tensor: "blocks.N", "readout" or "embed".

    All names outside the blocks and the readout belong to "embed".
    """
    first, *rest = name.split(".")
    if first == "blocks":
        return ".".join([first, *rest[:1]])
    return "readout" if first in READOUT else "embed"


class Noisy(nn.Module):
    """A block with process noise, drawn from the generator that the training loop sets for an epoch.

    Without a generator there is no noise.
    """

    noise: torch.Generator | None = None

    def noise_like(self, state: Tensor) -> Tensor:
        """Return standard normal noise of the state's shape; zero without a generator."""
        if self.noise is None:
            return torch.zeros_like(state)
        return torch.randn(state.shape, generator=self.noise, device=state.device, dtype=state.dtype)


@contextmanager
def noisy(network: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Context manager: set `generator` as the noise source of every Noisy block."""
    blocks = [module for module in network.modules() if isinstance(module, Noisy)]
    for block in blocks:
        block.noise = generator
    try:
        yield
    finally:
        for block in blocks:
            block.noise = None


class ExactCostate(abc.ABC):
    """A Network whose costate has a closed form, as a reference for credits instead of autograd's."""

    @abc.abstractmethod
    def costates(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """Return λ_l = ∂(Σ_i terminal loss_i)/∂h_l for l = 0..L without autograd.

        Each has its state's shape, with the sign of the gradient and without 1/N. Process noise is off.

        Args:
            x: inputs (N, …).
            y: classes (N,) or values (N, C).
        """


class Architecture(abc.ABC):
    """A buildable architecture: a card and one function."""

    card: ArchitectureCard

    @abc.abstractmethod
    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network on the CPU, in train mode and float32, with weights drawn only from `generator`.

        Torch's own constructors draw from the global generator, so layers are made by _layers. `build` need not repeat the checks
        of `check`; the card names the source.

        Args:
            options: complete, every name set.
            image_shape: of one input, (channels, height, width) of images.
            classes: C, the width of the logits.
        """

    def check(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...]) -> list[str]:
        """Return the problems of complete `options`, together or with images of this shape; none by default."""
        return []

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        """Return how many numbers `build` would draw, without drawing any; 0 (the default): not counted."""
        return 0

    def resolve(self, options: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return `options` over the card's defaults."""
        return {name: options.get(name, option.default) for name, option in self.card.options.items()}
