"""Probe context: data for diagnostics that run the network several times.

The probe context (also called the bench) does not depend on the task. All tensors are in float64 and in full shape: tokens
and maps are not reduced, because a perturbation moves the complete state. If a run cannot provide a field, the field is an
`Unavailable` with the reason. Metrics that need this field are N/A for the same reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry.diagnostics.base import Observation

NO_BENCH = "this metric needs several forward passes of the network, but only one pass is available"
SAMPLES_OF_POSITIONS = 16  # for states with tokens or maps: all 128 take minutes of a core in float64, for one run
PUSHED = f"of the eval batch all; the first {SAMPLES_OF_POSITIONS} where states have tokens or maps"
ROUNDINGS = 100  # in units of float64 rounding: a smaller change of the loss or of a state counts as no change


@dataclass(frozen=True)
class Unavailable:
    """Placeholder for a field of the probe context that a run cannot provide."""

    reason: str


@dataclass(frozen=True)
class ProbeContext:
    """Tensors and functions for probing one network on a batch of N samples.

    Args:
        states: h_0..h_L, L+1 tensors (N, …).
        gradients: gradients of the states, L+1 tensors (N, …).
        losses: cross entropy of each sample, (N,).
        losses_from: losses_from(site, states, first=0) → cross entropies (n, V) in eval mode. The states (n, V, …) are V variants
            of h_site for each of n samples, starting with sample number `first`.
        generator: generator(name) → a new CPU generator, identical for identical name and seed.
        credits: credits of the method, L+1 tensors (N, …).
        batch_gradients: batch_gradients() → L+1 tensors (K, D_l), the mean gradient of each of K disjoint batches.
        fresh_credits: fresh_credits(index) → L+1 rows of credits (rows, D_l), computed with draw number `index` of new feedback.
        weights: parameter name → tensor; names of block l begin with blocks.{l−1}.
        initial_weights: parameter name → tensor at initialisation.
        bridge_residuals: bridge_residuals() → V_φ − softmin V̄ at every site, (N,) each.
        costates: costates() → the exact costates, L+1 tensors (N, …).
        null_draws: number of draws of new feedback in a null distribution.
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
    """Restrict the probe context to the samples whose states are perturbed.

    If states have tokens or maps, these are the first SAMPLES_OF_POSITIONS samples, otherwise all samples.
    """
    if all(state.dim() == 2 for state in bench.states):
        return bench
    selection = slice(SAMPLES_OF_POSITIONS)
    credits = (
        bench.credits if isinstance(bench.credits, Unavailable) else [credit[selection] for credit in bench.credits]
    )
    return dataclasses.replace(
        bench,
        states=[state[selection] for state in bench.states],
        gradients=[gradient[selection] for gradient in bench.gradients],
        losses=bench.losses[selection],
        credits=credits,
    )


def absence(observation: Observation, *parts: str) -> str:
    """Return the reason why part of the probe context is missing, or an empty string.

    Args:
        observation: its `bench` is the probe context, or None.
        parts: names of the fields that are needed.
    """
    if observation.bench is None:
        return NO_BENCH
    parts_of_bench = (getattr(observation.bench, part) for part in parts)
    return next((part.reason for part in parts_of_bench if isinstance(part, Unavailable)), "")


def flat(rows: Tensor) -> Tensor:
    """Flatten a tensor (N, …) to (N, features)."""
    return rows.reshape(len(rows), -1)


def is_resolved(change: Tensor, losses: Tensor) -> Tensor:
    """Return elementwise whether changes of the loss exceed the loss's rounding.

    Args:
        change: absolute changes of losses.
        losses: losses before the change.
    """
    return change > ROUNDINGS * torch.finfo(torch.float64).eps * losses.abs().clamp(min=1.0)
