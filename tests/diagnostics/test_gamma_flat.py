"""gamma_flat: Γ of flattened maps against NumPy, beside Γ of their sums over positions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.diagnostics.gamma_flat import NO_MAP
from fa_registry.diagnostics.gamma_flat import PLUGIN as GAMMA_FLAT
from fa_registry.records.readings import WRONG_GRADIENT
from fa_registry.training.user_model import NOT_GIVEN
from tests.helpers.tiny_tasks import trained

SITES = ["conv", "deep", "fc"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.deep = nn.Conv2d(1, 5, 3), nn.Conv2d(5, 6, 3)
        self.fc, self.head = nn.Linear(6 * 16, 7), nn.Linear(7, 4)

    def forward(self, x):
        h = self.deep(self.conv(x).tanh()).tanh()
        return self.head(self.fc(h.flatten(1)).tanh())


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 1, 8, 8, generator=generator), torch.arange(12) % 4


@pytest.fixture
def gradients(batch):
    """∂ℓ/∂h of the two maps, (N, C, H, W) float64."""
    net, (x, y) = Net().double(), batch
    first = net.conv(x.double())
    second = net.deep(first.tanh())
    logits = net.head(net.fc(second.tanh().flatten(1)).tanh())
    return torch.autograd.grad(nn.functional.cross_entropy(logits, y, reduction="sum"), [first, second])


def mean_cosine(left, right):
    left, right = (rows.double().reshape(len(rows), -1).numpy() for rows in (left, right))
    return ((left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)).mean()


def drawn(*shapes):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def test_it_compares_whole_maps_and_gamma_their_sums(batch, gradients):
    credits = drawn((12, 5, 6, 6), (12, 6, 4, 4), (12, 7))
    found = fa_registry.alignment(Net(), batch, lambda *_: [None, *credits], SITES).measured.sites
    flat, sums = found["gamma_flat"], found["gamma"]
    for site, (credit, gradient) in enumerate(zip(credits, gradients, strict=False), start=1):
        assert flat[site].value == pytest.approx(mean_cosine(credit, gradient), rel=1e-5)
        assert sums[site].value == pytest.approx(mean_cosine(credit.sum((2, 3)), gradient.sum((2, 3))), rel=1e-5)
        assert abs(flat[site].value - sums[site].value) > 1e-3
    assert flat[0].reason == NOT_GIVEN and flat[3].reason == NO_MAP


def test_the_gradient_itself_is_aligned_and_a_row_is_constant_over_positions(batch, gradients):
    rows = drawn((12, 6))[0]
    credits = [None, gradients[0].float(), rows, None]
    flat = fa_registry.alignment(Net(), batch, lambda *_: credits, SITES).measured.sites["gamma_flat"]
    assert flat[1].value == pytest.approx(1)
    assert flat[2].value == pytest.approx(
        mean_cosine(rows[:, :, None, None].expand(12, 6, 4, 4), gradients[1]), rel=1e-5
    )


def test_a_wrong_reference_withdraws_it(batch):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, signal):
            return signal * torch.linspace(-1, 1, signal.shape[1])[:, None, None]

    class Wrong(Net):
        def forward(self, x):
            h = self.deep(Doubled.apply(self.conv(x).tanh())).tanh()
            return self.head(self.fc(h.flatten(1)).tanh())

    credits = drawn((12, 5, 6, 6), (12, 6, 4, 4), (12, 7))
    flat = fa_registry.alignment(Wrong(), batch, lambda *_: [None, *credits], SITES).measured.sites["gamma_flat"]
    assert [reading.value for reading in flat] == [None] * 4
    assert flat[1].kind == WRONG_GRADIENT


def test_estimated_gradients_have_no_positions(batch):
    class Branching(Net):
        def forward(self, x):  # control flow that depends on values cannot be traced
            return super().forward(x) if x.sum().item() < 1e9 else x

    credits = drawn((12, 5, 6, 6), (12, 6, 4, 4), (12, 7))
    rule = lambda *_: [None, *credits]  # noqa: E731
    found = fa_registry.alignment(Branching(), batch, rule, SITES, gradient="forward").measured.sites
    assert found["gamma"][1].value is not None
    assert {reading.value for reading in found["gamma_flat"]} == {None}
    assert "sum over positions" in found["gamma_flat"][1].reason


def test_a_run_with_maps_has_it_and_one_without_has_not():
    maps = {"architecture": "small_cnn", "architecture_options": {"width": 2, "num_blocks": 2}}
    trainer, _, outcome = trained(method="dfa", epochs=1, **maps)
    row = outcome.final.sites[GAMMA_FLAT.card.name]
    assert len(row) == len(outcome.final.sites["gamma"]) and row[-1].value is not None
    _, _, flat = trained(method="dfa", epochs=1)
    assert {reading.reason for reading in flat.final.sites[GAMMA_FLAT.card.name]} == {NO_MAP}
