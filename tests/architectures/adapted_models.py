"""Small models for the tests of adapt, their inputs, and their figures by plain autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

SEED, WIDTH, CLASSES = 11, 6, 3
STEPS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "outside": lambda block, h: h + block(h),
    "inside": lambda block, h: block(h),
}


class Branch(nn.Module):
    """A branch f, or with add=True the new state h + f(h); in_place writes into the block's own input."""

    def __init__(self, add: bool = False, in_place: bool = False):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.5)
        self.add = add
        self.in_place = in_place

    def branch(self, x: Tensor) -> Tensor:
        return self.drop(torch.tanh(self.linear(x)))

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            x += self.branch(x)
            return x
        return x + self.branch(x) if self.add else self.branch(x)


class Model(nn.Module):
    """step says how the model uses a block; finish what it does with h_L before the head."""

    def __init__(self, blocks: list[nn.Module], step: Callable, norm: bool = True, finish: Callable = lambda h: h):
        super().__init__()
        self.embed = nn.Linear(4, WIDTH)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(WIDTH) if norm else nn.Identity()
        self.out_head = nn.Linear(WIDTH, CLASSES)
        self.step = step
        self.finish = finish

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = self.step(block, h)
        return self.out_head(self.finish(self.norm(h)))


def build(skip: str, depth: int = 3, in_place: bool = False, step: Callable | None = None, **options) -> Model:
    torch.manual_seed(SEED)
    blocks = [Branch(add=skip == "inside", in_place=in_place) for _ in range(depth)]
    return Model(blocks, step or STEPS[skip], **options).double()


def batch(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(*shape, generator=generator, dtype=torch.float64), torch.arange(shape[0]) % CLASSES


def plain_passes(model: Model, x: Tensor, y: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """States and gradients by plain autograd, h + f(h) written out: no hook, nothing in place."""
    model.eval()
    states = [model.embed(x)]
    for block in model.blocks:
        states.append(states[-1] + block.branch(states[-1]))
    logits = model.out_head(model.finish(model.norm(states[-1])))
    loss = nn.functional.cross_entropy(logits, y, reduction="sum")
    return states, list(torch.autograd.grad(loss, states))
