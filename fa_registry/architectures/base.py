"""The contract of an architecture: a stack of blocks around one stream, and how to build it.

    h_0 = embed(x),  h_l = h_{l-1} + f_l(h_{l-1})  (or f_l(h_{l-1}) without skips),  z = out_head(out_ln(pool(h_L)))

A block returns its residual branch f_l; the network adds the skip, so nobody has to guess where the skip is.
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
    """version: of an architecture of our own; raised whenever its initial weights or its forward pass change.

    credit_options: those of its options that say where a credit goes, and nothing of the network: they have no effect where
    errors go back end to end, so that two such runs that differ in them alone have the same weights.
    """

    name: str
    line: str
    options: Mapping[str, Option]
    source: str
    version: int = 1
    credit_options: tuple[str, ...] = ()


def identity(state: Tensor) -> Tensor:
    """The pool of feature states (batch, hidden): nothing to pool."""
    return state


class Network(nn.Module):
    """embed, blocks, out_ln, out_head around one stream; attribute names are those of the published reference code.

    embed: None in a subclass that defines it as a method, over layers of its own: where the published code has no module of that
    name, its checkpoints' names stand at the top of the state dict. residual: whether h_l = h_{l-1} + f_l(h_{l-1}).
    pool: state → (batch, features) before out_ln.
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
        """Return the first site whose credit a parameter learns from: 1 where site 0 is the input, else 0."""
        return 0 if any(part_of(name) == "embed" for name, _ in self.named_parameters()) else 1

    def step(self, state: Tensor, branch: Tensor) -> Tensor:
        """h_l from h_{l-1} and f_l(h_{l-1}), of one shape: h_{l-1} + f_l, or f_l alone without skips."""
        return state + branch if self.residual else branch

    def spread(self, credit: Tensor, state: Tensor) -> Tensor:
        """A credit (N, D) as one of the state's shape, over all positions alike: c/P at each of P, so that they sum to c.

        Checked against autograd of <position average, c> in tests/training/test_step.py. One with positions stays as it is.
        """
        return broadcast_over_positions(credit, state)

    def readout(self, state: Tensor) -> Tensor:
        """Logits (batch, classes) from h_L: pooled first, then normalised, then read."""
        features = self.pool(state)
        return self.out_head(features if self.out_ln is None else self.out_ln(features))

    def hidden(self, x: Tensor) -> list[Tensor]:
        """h_0 .. h_L of inputs x (batch, …), L+1 states connected by one graph; h_l is the output of block l, blocks[l−1]."""
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(self.step(states[-1], block(states[-1])))
        return states

    def logits_from(self, site: int, state: Tensor) -> Tensor:
        """Logits (batch, classes) of a stream that is `state` at `site` (0..L): blocks site+1..L, then the readout."""
        # blocks are numbered from 1 and the list from 0, so blocks[site] is the one *above* this site: at site L none is left
        for block in self.blocks[site:]:
            state = self.step(state, block(state))
        return self.readout(state)

    def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Logits (batch, classes); with return_hidden also the states h_0 .. h_L."""
        states = self.hidden(x)
        logits = self.readout(states[-1])
        return (logits, states) if return_hidden else logits


def part_of(name: str) -> str:
    """Where a module or tensor of this name stands in a Network: "blocks.N", "readout", or "embed", whatever that is made of."""
    first, *rest = name.split(".")
    if first == "blocks":
        return ".".join([first, *rest[:1]])
    return "readout" if first in READOUT else "embed"


class Noisy(nn.Module):
    """A block with process noise. The training loop lends it a generator while an epoch runs; without one there is no noise."""

    noise: torch.Generator | None = None

    def noise_like(self, state: Tensor) -> Tensor:
        """Standard normal of the state's shape; zero without a generator."""
        if self.noise is None:
            return torch.zeros_like(state)
        return torch.randn(state.shape, generator=self.noise, device=state.device, dtype=state.dtype)


@contextmanager
def noisy(network: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Lend `generator` to every Noisy block inside."""
    blocks = [module for module in network.modules() if isinstance(module, Noisy)]
    for block in blocks:
        block.noise = generator
    try:
        yield
    finally:
        for block in blocks:
            block.noise = None


class ExactCostate(abc.ABC):
    """A Network whose costate has a closed form, so that credits can be compared with it instead of with autograd's."""

    @abc.abstractmethod
    def costates(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """λ_l = ∂(Σ_i terminal loss_i)/∂h_l for l = 0..L without autograd, each of its state's shape; gradient sign, no 1/N.

        x (N, …); y (N,) of classes or (N, C) of values. Process noise is off.
        """


class Architecture(abc.ABC):
    """A buildable architecture: a card and one function."""

    card: ArchitectureCard

    @abc.abstractmethod
    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """A network on the CPU with weights drawn from `generator` alone; `options` are complete (every name set).

        image_shape: of one input, (channels, height, width) of images; classes: C, the width of the logits. Returns it in train
        mode, in float32. Torch's own constructors draw from the global generator, so layers are made by _initialise. What
        `check` finds wrong with the options need not be looked at again; the card names the source.
        """

    def check(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...]) -> list[str]:
        """Problems, in words, of complete `options` together or with images of this shape; none by default."""
        return []

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        """How many numbers `build` would draw, counted without drawing any; 0, the default, where nobody has counted."""
        return 0

    def resolve(self, options: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """`options` over the card's defaults."""
        return {name: options.get(name, option.default) for name, option in self.card.options.items()}
