"""Probe context for diagnostics that need more than one pass of the network.

The argument and field `bench` is the probe context. States, gradients, losses and credits are in float64. States, gradients and
credits have all tokens or pixels, because a perturbation moves the complete state. If a run cannot provide a field, the field is an
`Unavailable` with the reason, and the metrics that need this field are N/A for the same reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry.diagnostics.base import Observation

NO_BENCH = "this metric needs several forward passes of the network, but only one pass is available"
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
        losses_from: losses_from(site, states, first=0) → losses (n, V) in eval mode. The states (n, V, …) are V variants of h_site
            for each of n samples, starting with sample number `first`.
        generator: generator(name) → a new CPU generator, which depends only on the name and the seed of the run.
        credits: credits of the method, L+1 tensors (N, …).
        batch_gradients: batch_gradients() → L+1 tensors (K, D_l), the mean gradient of each of K disjoint batches.
        fresh_credits: fresh_credits(index) → L+1 tensors (rows, D_l), the rows of the method's credits with a newly drawn feedback
            state, number `index`.
        weights: parameter name → tensor; names of block l begin with blocks.{l−1}.
        initial_weights: parameter name → tensor at initialisation.
        bridge_residuals: bridge_residuals() → V_φ − softmin V̄ of credit_bridge's value network V_φ at every site, (N,) each.
        costates: costates() → the costates ∂ℓ/∂h_l in closed form, L+1 tensors (N, …).
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
    """Return why a needed field of the probe context is missing, or an empty string.

    Args:
        observation: the field `bench` is the probe context, or None.
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
    """Return elementwise whether a change of the loss exceeds the loss's rounding.

    Args:
        change: absolute changes of losses.
        losses: losses before the change.
    """
    return change > ROUNDINGS * torch.finfo(torch.float64).eps * losses.abs().clamp(min=1.0)
