"""A small network whose subclasses are unusual in one way each, and the tests' statements about how it is measured."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fa_registry
from fa_registry.diagnostics._forward_backward import ESTIMATED

CLASSES, WIDTH, SAMPLES = 3, 8, 16
BOTH = pytest.mark.parametrize("gradient", ["backward", "forward"])
REENTRANT_WARNS = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
NOT_ITS_GRADIENT = "backward pass is not its gradient"


class Net(nn.Module):
    """h_0 = relu(a(x)), h_1 = b(h_0), h_2 = c(relu(h_1)), logits = head(relu(h_2)); what a subclass changes is its subject."""

    sites = ("b", "c")

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.a, self.b, self.c = nn.Linear(6, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.a(x))
        h = functional.relu(self.b(h))
        return self.head(functional.relu(self.c(h)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.tokens, self.b = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.b(self.tokens(ids))))


def batch(samples: int = SAMPLES) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(samples, 6, generator=generator), torch.arange(samples) % CLASSES


def true_norms(equations: Callable[[Net, Tensor, Callable], Tensor], model: Net, x: Tensor, y: Tensor) -> list[float]:
    """Medians of ‖g_l‖ in float64. equations(model, x, state) → logits, with `state` around every state."""
    model, shifts = copy.deepcopy(model).double().eval(), []

    def state(value: Tensor) -> Tensor:
        shifts.append(torch.zeros_like(value).requires_grad_())
        return value + shifts[-1]

    loss = functional.cross_entropy(equations(model, x.double(), state), y, reduction="sum")
    gradients = torch.autograd.grad(loss, shifts, materialize_grads=True)
    return [gradient.norm(dim=1).quantile(0.5).item() for gradient in gradients]


def plain(model: Net, x: Tensor, state: Callable) -> Tensor:
    h = state(model.a(x).clamp(min=0))
    h = state(model.b(h)).clamp(min=0)
    return model.head(state(model.c(h)).clamp(min=0))


def measure(model: nn.Module, gradient: str = "backward", sites: Sequence[str] = (), samples: int = SAMPLES, **how):
    sites = sites or Net.sites
    adapted = fa_registry.adapt(model, sites, gradient=gradient, **how)
    credits = [torch.ones(samples, WIDTH)] * (len(sites) + 1)
    return fa_registry.alignment(adapted, batch(samples), lambda *_: credits)


def values(found: fa_registry.Alignment, name: str) -> list[float | None]:
    return [reading.value for reading in found.measured.sites[name]]


def reasons(found: fa_registry.Alignment, name: str = "g_norm") -> set[str]:
    return {reading.reason for reading in found.measured.sites[name]}


def assert_true(
    found: fa_registry.Alignment, equations: Callable, model: nn.Module, rel: float = 1e-5, check: float = 1e-3
) -> None:
    """Every ‖g_l‖ is that of the equations, every site is checked, and Γ has a value."""
    assert values(found, "g_norm") == pytest.approx(true_norms(equations, model, *batch()), rel=rel)
    if not found.reference.startswith(ESTIMATED):
        assert max(values(found, "reference_check")) < check
    assert None not in values(found, "gamma")


def assert_withdrawn(found: fa_registry.Alignment, sentence: str = NOT_ITS_GRADIENT) -> None:
    """Nothing that rests on the gradient is shown, and the reason is this one."""
    for name in ("g_norm", "gain", "fidelity", "gamma"):
        assert values(found, name) == [None] * len(found.sites)
        assert all(sentence in reason for reason in reasons(found, name)), name
    assert None not in values(found, "h_norm")
