"""Benches: of a real task, and made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from fa_registry import diagnostics
from fa_registry.diagnostics import Absent, Bench, Observation
from fa_registry.training.bench import bench_of, credits_under
from fa_registry.training.task import Task
from tests.helpers.small import observation


def bench_for(task: Task) -> Bench:
    """What `measure` would hand to the diagnostics of the end."""
    look = diagnostics.look(task.network, *task.eval_batch)
    return bench_of(task, look, credits_under(task, task.feedback, look), "", None)


def first(task: Task, count: int) -> Task:
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
    given = credits if isinstance(credits, Absent) else [torch.as_tensor(credits, dtype=torch.float64)]
    nothing = Absent("not on this bench")
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
    made = Bench(
        states=[state],
        gradients=[gradient],
        losses=base,
        losses_from=parts.pop("losses_from", linear_losses(gradient, state, base)),
        generator=generator,
        credits=given,
        **parts,
    )
    return observation(
        hidden=[state], gradients=[gradient], credits=None if isinstance(given, Absent) else given, bench=made
    )
