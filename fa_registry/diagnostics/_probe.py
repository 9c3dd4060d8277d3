"""Probe context for diagnostics that need more than one pass of the network.

In other modules, the probe context is called `bench`. States, gradients, losses and credits are in float64. States, gradients and
credits contain all tokens or pixels, because a perturbation moves the complete state. If a run cannot provide a field, the field
is an `Unavailable` with the reason. The metrics that need the field are N/A, with this reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry.diagnostics.base import Observation

NO_BENCH = "this metric needs several passes of the network or its initial weights, but only one pass was observed"
SAMPLES_OF_POSITIONS = 16  # for states with tokens or maps: all 128 samples would take minutes per run on a core
PUSHED = f"of the eval batch all; the first {SAMPLES_OF_POSITIONS} where states have tokens or maps"
ROUNDINGS = 100  # in units of float64 eps: a smaller relative change of the loss or of a state counts as no change


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
        losses: loss of each sample, (N,).
        losses_from: function (site, states, first=0) → losses (n, V) in eval mode. `states` (n, V, …) contains V variants of
            h_site for each of n consecutive samples. `first` is the index of the first of these samples in the batch.
        generator: function name → new CPU generator. The generator depends only on the name and the seed of the run.
        credits: credits of the method, L+1 tensors (N, …).
        batch_gradients: function () → L+1 tensors (K, D_l), which contain the mean gradients of K disjoint batches.
        fresh_credits: function index → L+1 tensors (rows, D_l), which contain the method's credits with the newly drawn feedback
            state number `index`.
        weights: mapping from parameter name to tensor. The names of block l begin with blocks.{l−1}.
        initial_weights: the same mapping at initialisation.
        bridge_residuals: function () → V_φ − softmin V̄ for credit_bridge's value network V_φ, one tensor (N,) per site.
        costates: function () → the costates ∂ℓ/∂h_l in closed form, L+1 tensors (N, …).
        null_draws: number of newly drawn feedback states for the null distribution of Γ.
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
    """Return the probe context of the samples whose states are perturbed.

    If states are tokens or maps, only the first SAMPLES_OF_POSITIONS samples are perturbed, otherwise all.
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
    """Return why one of the needed fields of the probe context is missing, or an empty string."""
    if observation.bench is None:
        return NO_BENCH
    parts_of_bench = (getattr(observation.bench, part) for part in parts)
    return next((part.reason for part in parts_of_bench if isinstance(part, Unavailable)), "")


def flat(rows: Tensor) -> Tensor:
    """Flatten a tensor (N, …) to (N, features)."""
    return rows.reshape(len(rows), -1)


def is_resolved(change: Tensor, losses: Tensor) -> Tensor:
    """Return whether each absolute change of a loss is larger than the rounding of the loss before it."""
    return change > ROUNDINGS * torch.finfo(torch.float64).eps * losses.abs().clamp(min=1.0)
