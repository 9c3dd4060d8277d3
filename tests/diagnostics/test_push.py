"""Directions and correlations: what is drawn for whom, and Pearson without its pitfalls."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.diagnostics import rho
from fa_registry.diagnostics.rho import DIRECTIONS, pearson, push, unit_directions
from fa_registry.training import task as tasks
from tests.helpers.bench import bench_for, first
from tests.helpers.small import double, tiny_task

STEPS = (0.01, 0.5)
CPU = torch.device("cpu")


def pushed(count: int):
    """Predictions and changes of the first samples of the digits, the exact gradient and dfa's credit as candidates."""
    bench = bench_for(first(double(tiny_task()), count))  # in float64 throughout, or dfa's credit rounds by batch
    candidates = [torch.stack(pair, dim=2) for pair in zip(bench.gradients, bench.credits, strict=True)]
    return push(bench, candidates, [STEPS] * 3)


@pytest.mark.parametrize("count", [1, 37, 128])
def test_a_samples_figures_do_not_depend_on_who_else_is_pushed(count, monkeypatch):
    monkeypatch.setattr(tasks, "EVAL_SAMPLES", 200)
    for some, all_of_them in zip(pushed(count), pushed(200), strict=True):
        for found, expected in zip(some, all_of_them, strict=True):
            assert found.shape == (2, count, DIRECTIONS)
            assert torch.allclose(found, expected[:, :count], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("entries", [1, 7 * DIRECTIONS * 16, 2**30])
def test_pushing_in_pieces_is_pushing_at_once(entries, monkeypatch):
    whole = pushed(20)
    monkeypatch.setattr(rho, "ENTRIES", {"cpu": entries})
    for pieces, expected in zip(pushed(20), whole, strict=True):
        assert all(torch.allclose(*pair, rtol=1e-9, atol=1e-13) for pair in zip(pieces, expected, strict=True))


def test_changes_are_of_the_loss_from_that_site_and_that_sample():
    task = first(double(tiny_task()), 5)
    bench = bench_for(task)
    units = unit_directions(5, torch.Size([16]), bench.generator(rho.STREAM), CPU)
    for site, (predicted, changes) in enumerate(pushed(5)):
        for place, step in enumerate(STEPS):
            moved = bench.losses_from(site, bench.states[site].unsqueeze(1) + step * units)
            assert torch.allclose(changes[place], moved - bench.losses.unsqueeze(1), atol=1e-12)
        assert torch.allclose(predicted[0], (units * bench.gradients[site].unsqueeze(1)).sum(dim=2), atol=1e-12)


def test_directions_are_of_length_one_and_favour_none():
    units = unit_directions(500, torch.Size([2, 3]), torch.Generator().manual_seed(0), CPU)
    assert units.shape == (500, DIRECTIONS, 6) and units.dtype == torch.float64
    assert torch.allclose((units**2).sum(dim=2), torch.ones(500, DIRECTIONS, dtype=torch.float64))
    flat = units.reshape(-1, 6)
    assert torch.allclose(flat.T @ flat / len(flat), torch.eye(6).double() / 6, atol=0.01)
    assert flat.mean(dim=0).abs().max() < 0.02


def test_pearson_is_numpys():
    draw = np.random.default_rng(5).normal(size=(2, 4, 30))
    found = pearson(torch.tensor(draw[0]), torch.tensor(draw[1]))
    assert found.tolist() == pytest.approx([np.corrcoef(*pair)[0, 1] for pair in zip(*draw, strict=True)])


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_pearson_does_not_depend_on_size(size):
    rows = torch.tensor([[1.0, 2.0, 4.0], [1.0, 0.0, 3.0]], dtype=torch.float64)
    assert pearson(rows[0] * size, rows[1]).item() == pytest.approx(pearson(*rows).item(), rel=1e-12)


@pytest.mark.parametrize(
    "flat",
    [[0.0, 0.0, 0.0], [0.1, 0.1, 0.1], [1.0, 1.0 + 2e-16, 1.0], [1.0, float("inf"), 2.0], [1.0, float("nan"), 2.0]],
)
def test_pearson_of_what_does_not_vary_or_is_not_finite_is_nan(flat):
    assert pearson(torch.tensor(flat, dtype=torch.float64), torch.tensor([1.0, 2.0, 4.0]).double()).isnan()
