"""Models as researchers write them, in five styles, each with a reference written from its equations.

`Case.true` gives the states and gradients of the model's own equations in float64: plain autograd over plain tensor operations,
from the model's weights alone. It calls neither the model nor its modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 3
Weights = dict[str, Tensor]
Chain = Callable[[Weights, Tensor], tuple[list[Tensor], Tensor]]


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    """W x + b, from the weights of this name."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


@dataclass(frozen=True)
class Case:
    """One model, its batch and its truth.

    chain: weights and input → the states h_0..h_L and the logits. honest: whether the model's own backward pass is its gradient.
    """

    model: nn.Module
    x: Tensor
    sites: Sequence[str]
    chain: Chain
    honest: bool = True

    @property
    def y(self) -> Tensor:
        return torch.arange(len(self.x)) % CLASSES

    def true(self) -> tuple[list[Tensor], list[Tensor]]:
        """States and ∂(Σ_i ℓ_i)/∂h_l, float64, in the states' shapes."""
        weights = {
            name: held.detach().double() if held.is_floating_point() else held
            for name, held in self.model.state_dict().items()
        }
        x = self.x.double() if self.x.is_floating_point() else self.x
        shifts: list[Tensor] = []

        class Recorded(dict):
            """Weights that give every state a shift to differentiate for."""

            def state(self, value: Tensor) -> Tensor:
                shifts.append(torch.zeros_like(value).requires_grad_())
                return value + shifts[-1]

        states, logits = self.chain(Recorded(weights), x)
        loss = functional.cross_entropy(logits, self.y, reduction="sum")
        return [state.detach() for state in states], list(torch.autograd.grad(loss, shifts))


class Plain(nn.Module):
    """Style 1: modules in a row; every second one is a site."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        hidden = [module for _ in range(depth) for module in (nn.Linear(width, width), nn.Tanh())]
        self.net = nn.Sequential(nn.Linear(8, width), nn.Tanh(), *hidden, nn.Linear(width, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def plain(width: int, depth: int) -> Case:
    def chain(weights: Weights, x: Tensor) -> tuple[list[Tensor], Tensor]:
        first = linear(weights, "net.0", x).tanh()
        states = [weights.state(linear(weights, "net.2", first))]  # what the first site, a Tanh, reads
        states.append(weights.state(states[0].tanh()))
        for block in range(1, depth):
            states.append(weights.state(linear(weights, f"net.{2 + 2 * block}", states[-1]).tanh()))
        return states, linear(weights, f"net.{2 + 2 * depth}", states[-1])

    return Case(Plain(width, depth), torch.randn(24, 8), [f"net.{3 + 2 * block}" for block in range(depth)], chain)


class Called(nn.Module):
    """Style 2: function calls between the modules: a ReLU, a residual sum and a concatenation with the input."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width + 8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.embed(x))
        for index, layer in enumerate(self.layers):
            branch = functional.relu(layer(h))
            h = h + branch if index % 2 else branch
        return self.head(torch.cat([h, x], dim=1))


def called(width: int, depth: int) -> Case:
    def chain(weights: Weights, x: Tensor) -> tuple[list[Tensor], Tensor]:
        h = weights.state(linear(weights, "embed", x).clamp(min=0))
        states = [h]
        for index in range(depth):
            states.append(weights.state(linear(weights, f"layers.{index}", h)))
            h = states[-1].clamp(min=0) + (h if index % 2 else 0)
        return states, linear(weights, "head", torch.cat([h, x], dim=1))

    return Case(Called(width, depth), torch.randn(24, 8), [f"layers.{index}" for index in range(depth)], chain)


class FeedbackProduct(torch.autograd.Function):
    """y = W x + b forward; B in place of Wᵀ backward."""

    @staticmethod
    def forward(context, x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> Tensor:
        context.save_for_backward(x, feedback)
        return x @ weight.t() + bias

    @staticmethod
    def backward(context, error: Tensor) -> tuple[Tensor | None, ...]:
        x, feedback = context.saved_tensors
        return error @ feedback, error.t() @ x, error.sum(0), None  # fa: ok FA013 it is what the check has to find


class FeedbackLinear(nn.Module):
    """As the public libraries write it. scale: B = scale · W where it is given, else B is random."""

    def __init__(self, width: int, scale: float | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(width))
        drawn = torch.randn(width, width) / width**0.5
        self.register_buffer("feedback", drawn if scale is None else scale * self.weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return FeedbackProduct.apply(x, self.weight, self.bias, self.feedback)


class Custom(nn.Module):
    """Style 3: a residual network whose branches have a custom backward pass."""

    def __init__(self, width: int, depth: int, scale: float | None = None):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.blocks = nn.ModuleList(FeedbackLinear(width, scale) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        return self.head(h)


def custom(width: int, depth: int) -> Case:
    def chain(weights: Weights, x: Tensor) -> tuple[list[Tensor], Tensor]:
        h = weights.state(linear(weights, "embed", x))
        states = [h]
        for index in range(depth):
            states.append(weights.state(linear(weights, f"blocks.{index}", h)))
            h = h + states[-1].tanh()
        return states, linear(weights, "head", h)

    sites = [f"blocks.{index}" for index in range(depth)]
    return Case(Custom(width, depth), torch.randn(24, 8), sites, chain, honest=False)


class Detached(nn.Module):
    """Style 4: states are cut off, and credits are fed in by hand at every cut."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)
        self.points: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.points = []
        h = torch.tanh(self.embed(x))
        for layer in self.layers:
            entry = h.detach().requires_grad_()
            h = torch.tanh(layer(entry))
            self.points.append((entry, h))
        return self.head(h.detach())

    def learn(self, x: Tensor, credits: Sequence[Tensor]) -> None:
        """Run forward, and feed credit l backward from state l."""
        self(x)
        for (_, state), credit in zip(self.points, credits, strict=True):
            state.backward(credit)


def detached(width: int, depth: int) -> Case:
    def chain(weights: Weights, x: Tensor) -> tuple[list[Tensor], Tensor]:
        h = weights.state(linear(weights, "embed", x).tanh())
        states = [h]
        for index in range(depth):
            states.append(weights.state(linear(weights, f"layers.{index}", h)))
            h = states[-1].tanh()
        return states, linear(weights, "head", h)

    sites = [f"layers.{index}" for index in range(depth)]
    return Case(Detached(width, depth), torch.randn(24, 8), sites, chain, honest=False)


class Decoder(nn.Module):
    """Style 5: a causal decoder over token ids. Blocks take keywords and return a tuple."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, width), nn.Embedding(6, width)
        self.layers = nn.ModuleList(DecoderLayer(width) for _ in range(depth))
        self.score = nn.Linear(width, CLASSES, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            h = layer(hidden_states=h, use_cache=False)[0]
        return self.score(h.mean(dim=1))


class DecoderLayer(nn.Module):
    """Pre-norm attention with one head, and a gated product."""

    def __init__(self, width: int):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, hidden_states: Tensor, use_cache: bool) -> tuple[Tensor, None]:
        query, key, value = self.qkv(self.first(hidden_states)).chunk(3, dim=-1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden_states = hidden_states + self.out(mixed)
        gate, passed = self.up(self.second(hidden_states)).chunk(2, dim=-1)
        return hidden_states + self.down(functional.silu(gate) * passed), None


def decoder(width: int, depth: int) -> Case:
    def norm(weights: Weights, name: str, h: Tensor) -> Tensor:
        centred = h - h.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def chain(weights: Weights, ids: Tensor) -> tuple[list[Tensor], Tensor]:
        states = [weights.state(weights["tokens.weight"][ids] + weights["positions.weight"][: ids.shape[1]])]
        for layer in (f"layers.{index}" for index in range(depth)):
            h = states[-1]
            query, key, value = linear(weights, f"{layer}.qkv", norm(weights, f"{layer}.first", h)).split(width, -1)
            scores = query @ key.transpose(1, 2) / width**0.5
            future = torch.ones(scores.shape[1:]).triu(1).bool()
            h = h + linear(weights, f"{layer}.out", scores.masked_fill(future, -torch.inf).softmax(-1) @ value)
            up = linear(weights, f"{layer}.up", norm(weights, f"{layer}.second", h))
            gate, passed = up.split(width, -1)
            states.append(weights.state(h + linear(weights, f"{layer}.down", gate * gate.sigmoid() * passed)))
        return states, states[-1].mean(1) @ weights["score.weight"].T

    ids = torch.randint(11, (24, 6))
    return Case(Decoder(width, depth), ids, [f"layers.{index}" for index in range(depth)], chain)


STYLES = {"plain": plain, "called": called, "custom": custom, "detached": detached, "decoder": decoder}
# Five styles × sizes: 12 models.
CASES = [
    ("plain", 8, 1),
    ("plain", 24, 4),
    ("called", 8, 2),
    ("called", 24, 4),
    ("custom", 8, 1),
    ("custom", 32, 3),
    ("custom", 48, 5),
    ("detached", 8, 1),
    ("detached", 32, 3),
    ("detached", 48, 4),
    ("decoder", 8, 1),
    ("decoder", 16, 3),
]


def build(style: str, width: int, depth: int) -> Case:
    """Return the model of this style and size, afresh."""
    torch.manual_seed(width + depth)
    case = STYLES[style](width, depth)
    case.model.eval()
    return case
