"""Benches: of a real task, and made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from fa_registry import diagnostics
from fa_registry.diagnostics import Observation, ProbeContext, Unavailable
from fa_registry.training.probe_context import bench_of, credits_under
from fa_registry.training.run_setup import RunSetup
from tests.helpers.tiny_tasks import observation


def bench_for(task: RunSetup) -> ProbeContext:
    """What `measure` would hand to the diagnostics of the end."""
    look = diagnostics.run_forward_backward(task.network, *task.eval_batch)
    return bench_of(task, look, credits_under(task, task.feedback, look), "", None)


def first(task: RunSetup, count: int) -> RunSetup:
    """The same task with a test split of its first `count` samples."""
    splits = dataclasses.replace(
        task.splits, test_images=task.splits.test_images[:count], test_labels=task.splits.test_labels[:count]
    )
    return dataclasses.replace(task, splits=splits)


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(sum(map(ord, name)))


def linear_losses(gradient: Tensor, states: Tensor, base: Tensor):
    """losses_from of a loss that is linear around `states`: base + g·(h − states), whole states (N, …)."""

    def losses_from(site: int, pushed: Tensor, first: int = 0) -> Tensor:
        samples = slice(first, first + len(pushed))
        moved = (pushed - states[samples].unsqueeze(1)) * gradient[samples].unsqueeze(1)
        return base[samples].unsqueeze(1) + moved.flatten(2).sum(dim=2)

    return losses_from


def one_site(states: Any, gradients: Any, credits: Any, losses: Any = None, **changes: Any) -> Observation:
    """An observation of one site with a bench on which the loss is linear. credits: nested lists, or an Absent."""
    state, gradient = (torch.as_tensor(rows, dtype=torch.float64) for rows in (states, gradients))
    base = torch.ones(len(state), dtype=torch.float64) if losses is None else torch.as_tensor(losses).double()
    given = credits if isinstance(credits, Unavailable) else [torch.as_tensor(credits, dtype=torch.float64)]
    nothing = Unavailable("not on this bench")
    parts = {
        "batch_gradients": nothing,
        "fresh_credits": nothing,
        "weights": nothing,
        "initial_weights": nothing,
        "bridge_residuals": nothing,
        "costates": nothing,
        "null_draws": 20,
        **changes,
    }
    made = ProbeContext(
        states=[state],
        gradients=[gradient],
        losses=base,
        losses_from=parts.pop("losses_from", linear_losses(gradient, state, base)),
        generator=generator,
        credits=given,
        **parts,
    )
    return observation(
        hidden=[state], gradients=[gradient], credits=None if isinstance(given, Unavailable) else given, bench=made
    )
