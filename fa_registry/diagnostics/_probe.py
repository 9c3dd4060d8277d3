"""The bench: tensors and functions for measurements that need more than one pass over one batch.

It does not depend on a task. Everything is in float64 and in full shape (tokens and maps are not reduced), because a
perturbation moves the whole state. A part that a run cannot provide is an Unavailable with the reason; metrics that need it are
N/A for that reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry.diagnostics.base import Observation

NO_BENCH = "this needs repeated forward passes of the network, and only one pass was available"
SAMPLES_OF_POSITIONS = 16  # for states with tokens or maps: all 128 take minutes of a core in float64, for one run
PUSHED = f"of the eval batch all; the first {SAMPLES_OF_POSITIONS} where states have tokens or maps"
ROUNDINGS = 100  # in units of float64 rounding: a smaller change of the loss or of a state counts as no change


@dataclass(frozen=True)
class Unavailable:
    """A placeholder for a part of the bench that is not available."""

    reason: str


@dataclass(frozen=True)
class ProbeContext:
    """The bench of one network and eval batch.

    Args:
        states: L+1 tensors (N, …).
        gradients: L+1 tensors (N, …).
        losses: cross entropy of each sample, (N,).
        losses_from: losses_from(site, states, first=0) → cross entropies (n, V) in eval mode, for states (n, V, …): V variants
            of h_site for each of the n samples from `first` on.
        generator: generator(name) → a fresh CPU generator, the same for the same name and seed.
        credits: L+1 tensors (N, …).
        batch_gradients: batch_gradients() → L+1 tensors (K, D_l), the mean gradient of each of K disjoint batches.
        fresh_credits: fresh_credits(index) → L+1 credits (N, …) under the index-th fresh draw of the feedback state.
        weights: name → tensor; names of block l begin with blocks.{l−1}.
        initial_weights: as weights.
        bridge_residuals: bridge_residuals() → V_φ − softmin V̄ per site, (N,) each.
        costates: costates() → the exact costates, L+1 tensors (N, …).
        null_draws: number of fresh draws in a null.
    """

    states: Sequence[Tensor]
    gradients: Sequence[Tensor]
    losses: Tensor
    losses_from: Callable[..., Tensor]
    generator: Callable[[str], torch.Generator]
    credits: Sequence[Tensor] | Unavailable
    batch_gradients: Callable[[], Sequence[Tensor]] | Unavailable
    fresh_credits: Callable[[int], Sequence[Tensor]] | Unavailable
    weights: Mapping[str, Tensor] | Unavailable
    initial_weights: Mapping[str, Tensor] | Unavailable
    bridge_residuals: Callable[[], Sequence[Tensor]] | Unavailable
    costates: Callable[[], Sequence[Tensor]] | Unavailable
    null_draws: int


def perturbed_samples(bench: ProbeContext) -> ProbeContext:
    """Return the bench restricted to the samples whose states are perturbed.

    These are all samples, or the first few if states have tokens or maps.
    """
    if all(state.dim() == 2 for state in bench.states):
        return bench
    few = slice(SAMPLES_OF_POSITIONS)
    credits = bench.credits if isinstance(bench.credits, Unavailable) else [credit[few] for credit in bench.credits]
    return dataclasses.replace(
        bench,
        states=[state[few] for state in bench.states],
        gradients=[gradient[few] for gradient in bench.gradients],
        losses=bench.losses[few],
        credits=credits,
    )


def absence(observation: Observation, *parts: str) -> str:
    """Return why the bench or one of its parts is missing; empty if nothing is missing."""
    if observation.bench is None:
        return NO_BENCH
    parts_of_bench = (getattr(observation.bench, part) for part in parts)
    return next((part.reason for part in parts_of_bench if isinstance(part, Unavailable)), "")


def flat(rows: Tensor) -> Tensor:
    """Flatten (N, …) to (N, features)."""
    return rows.reshape(len(rows), -1)


def is_resolved(change: Tensor, losses: Tensor) -> Tensor:
    """Return elementwise whether a change of the loss is larger than the rounding of such a loss."""
    return change > ROUNDINGS * torch.finfo(torch.float64).eps * losses.abs().clamp(min=1.0)
