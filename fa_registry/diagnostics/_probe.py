"""The bench: what may be tried on a network beyond looking at one batch. Tensors and plain functions; it knows no task.

Everything is in float64 and in full shape (tokens and maps as they are), because a perturbation moves the whole state. What
a run cannot offer is an Absent with the reason, and then what is measured with it is N/A for that reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry.diagnostics.base import Observation

NO_BENCH = "the network could only be looked at once: this needs trials on it"
SAMPLES_OF_POSITIONS = 16  # of states with tokens or maps: all 128 take minutes of a core in float64, for one run
PUSHED = f"of the eval batch all; the first {SAMPLES_OF_POSITIONS} where states have tokens or maps"
ROUNDINGS = 100  # of float64: a change of the loss, or of a state, counts as one from here on


@dataclass(frozen=True)
class Unavailable:
    """What stands in for a part that is not there."""

    reason: str


@dataclass(frozen=True)
class ProbeContext:
    """states, gradients, credits: L+1 tensors (N, …). losses: each sample's cross entropy, (N,).

    losses_from(site, states, first=0): states (n, V, …), V variants of h_site for each of the n samples from `first` on →
    their cross entropies (n, V), in eval mode. batch_gradients() → L+1 tensors (K, D_l), the mean gradient of each of K
    disjoint batches. fresh_credits(index) → L+1 credits (N, …) under the index-th fresh draw of the feedback state;
    null_draws: how many of them make a null.
    weights, initial_weights: name → tensor; those of block l are named blocks.{l−1}.… bridge_residuals() → V_φ − softmin V̄
    per site, (N,) each. costates() → the exact costates, L+1 tensors (N, …). generator(name) → a fresh CPU generator, the same
    one for the same name and seed.
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
    """The bench of the samples whose states are moved about: all, or the first few where states have tokens or maps."""
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
    """Why the bench, or one of its parts, is missing; empty where all are there."""
    if observation.bench is None:
        return NO_BENCH
    parts_of_bench = (getattr(observation.bench, part) for part in parts)
    return next((part.reason for part in parts_of_bench if isinstance(part, Unavailable)), "")


def flat(rows: Tensor) -> Tensor:
    """(N, …) → (N, features)."""
    return rows.reshape(len(rows), -1)


def is_resolved(change: Tensor, losses: Tensor) -> Tensor:
    """Whether a change of the loss is larger than what rounding alone makes of a loss of this size. Elementwise."""
    return change > ROUNDINGS * torch.finfo(torch.float64).eps * losses.abs().clamp(min=1.0)
