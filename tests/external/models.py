"""A model as the published code has it, and batches to judge it on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SEED, WIDTH, CLASSES, DEPTH = 2, 8, 3, 3


class Published(nn.Module):
    """tokens: reads ids through an Embedding instead of features. gain: of block 2's weight."""

    def __init__(self, tokens: bool = False, gain: float = 1.0):
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH) if tokens else nn.Linear(5, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.out_ln = nn.LayerNorm(WIDTH)
        self.out_head = nn.Linear(WIDTH, CLASSES)
        with torch.no_grad():
            self.blocks[1].weight.mul_(gain)

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(states[-1] + block(states[-1]))
        return states

    def read(self, state: Tensor) -> Tensor:
        return self.out_head(self.out_ln(state[:, 0] if state.dim() == 3 else state))

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.states(x)[-1])


class Detached(Published):
    """A stream that is cut before the head: the loss reaches no state."""

    def read(self, state: Tensor) -> Tensor:
        return super().read(state.detach())


def build(kind: type[Published] = Published, **options) -> Published:
    torch.manual_seed(SEED)
    return kind(**options)


def exploded() -> Published:
    """Block 2 adds infinity."""
    model = build()
    with torch.no_grad():
        model.blocks[1].bias.fill_(torch.inf)
    return model


def indifferent() -> Published:
    """A head of zeros: every gradient is exactly zero."""
    model = build()
    with torch.no_grad():
        model.out_head.weight.zero_()
    return model


def batch(count: int = 16, seed: int = SEED) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(count) % CLASSES


def batches(count: int = 8) -> list[tuple[Tensor, Tensor]]:
    return [batch(seed=SEED + index) for index in range(count)]
