"""Diagnostic rho: does the credit predict how perturbations change the loss?

The states are perturbed in random directions. The metric is the correlation between the predicted and the actual change of the
loss. The credit gives the prediction. In two controls, the exact gradient or a random credit replaces the method's credit.

The changes are computed in float32, and again in float64 where float32 does not suffice, see `_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from fa_registry.diagnostics._probe import (
    PUSHED,
    ROUNDINGS,
    ProbeContext,
    Unavailable,
    absence,
    flat,
    is_resolved,
    perturbed_samples,
)
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing
from fa_registry.records import Reading, not_finite

DIRECTIONS = 32  # per sample, protocol.md §1
STREAM = "rho/directions"
# Largest number of entries of all perturbed states in one forward pass. On a CPU they fit into a core's cache; on other devices
# (ENTRIES_ELSEWHERE) they keep a GPU busy.
ENTRIES = {"cpu": 2**17}
ENTRIES_ELSEWHERE = 2**24
# Largest difference, relative to the changes, between the changes in float32 and those of a linear loss with the exact gradient.
# The difference is the sum of float32's rounding and the curvature, so each of them is smaller. A rounding that is independent
# between n changes moves a correlation by at most NEAR/√n + NEAR²/2: 1e-4 for 128 samples, 2.4e-4 for SAMPLES_OF_POSITIONS.
NEAR = 5e-3
TOLERANCE = 3e-4  # largest deviation from ρ in float64; docs/decisions/21-costs.md and tests/diagnostics/test_rho.py
FLAT = 1e-12  # a smaller relative standard deviation is the rounding of the mean, and the values count as constant


def push(
    bench: ProbeContext, candidates: Sequence[Tensor], steps: Sequence[Sequence[float]]
) -> list[tuple[Tensor, Tensor]]:
    """Shift every state along V = DIRECTIONS random unit directions v, and measure the loss.

    The directions of a sample depend only on its index in the batch, not on the number of samples. Sites with states of the same
    shape share their directions, which saves time.

    Args:
        candidates: per site, k credits to compare for each of N samples, (N, features, k). The first one is the exact gradient.
        steps: per site, the step sizes ε. Each ε is used along every direction.

    Returns:
        Per site, the predictions ⟨c, v⟩, (k, N, V), and the changes ℓ(h + εv) − ℓ(h) for every ε, (steps, N, V).
    """
    parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in bench.states]
    for samples, directions in _chunks(bench):
        for site in range(len(bench.states)):
            units = partial(directions, bench.states[site].shape[1:])
            slopes = (units(torch.float64) @ candidates[site][samples]).permute(2, 0, 1)[..., 1:]  # (k, n, V)
            parts[site].append((slopes, _changes(bench, site, samples, units, slopes[0], steps[site])))
    return [tuple(torch.cat(pieces, dim=1) for pieces in zip(*part, strict=True)) for part in parts]


Units = Callable[
    [torch.dtype], Tensor
]  # directions of a chunk in a precision, (n, 1 + V, features); the first one is zero


def _chunks(bench: ProbeContext) -> Iterator[tuple[slice, Callable[[torch.Size, torch.dtype], Tensor]]]:
    """Yield slices of samples, each with a function: a state's shape and a precision to directions."""
    count, largest = len(bench.losses), max(state[0].numel() for state in bench.states)
    size = max(1, ENTRIES.get(bench.losses.device.type, ENTRIES_ELSEWHERE) // (DIRECTIONS * largest))
    streams: dict[torch.Size, torch.Generator] = {}

    def drawn(count: int, shape: torch.Size, precision: torch.dtype) -> Tensor:
        if precision != torch.float64:
            return directions(shape, torch.float64).to(precision)
        stream = streams.setdefault(shape, bench.generator(STREAM))
        return nn.functional.pad(unit_directions(count, shape, stream, bench.losses.device), (0, 0, 1, 0))

    for first in range(0, count, size):
        samples = slice(first, min(first + size, count))
        directions = cache(partial(drawn, samples.stop - samples.start))
        yield samples, directions


def unit_directions(count: int, shape: torch.Size, stream: torch.Generator, device: torch.device) -> Tensor:
    """Draw directions (count, DIRECTIONS, features), uniformly on the unit sphere.

    The directions are drawn in float32, which takes a fifth of the time of float64. They are normalised in float64.
    """
    gaussian = torch.randn(count, DIRECTIONS, shape.numel(), generator=stream).to(device, torch.float64)
    return gaussian / torch.linalg.vector_norm(gaussian, dim=2, keepdim=True)


def _changes(
    bench: ProbeContext, site: int, samples: slice, units: Units, slopes: Tensor, steps: Sequence[float]
) -> Tensor:
    """Compute ℓ(h + εv) − ℓ(h) for a slice of the samples and every step ε, (steps, n, V).

    The changes for the largest step w are computed in float32. They are compared with w⟨g, v⟩, where ⟨g, v⟩ are the slopes (n, V)
    of the loss in float64. If both agree up to NEAR, float32 resolves the changes, and the loss is nearly linear up to w. The
    changes for a smaller step are then those of the parabola with this slope and this change at w: float32 does not resolve the
    step of the paper in states of a large norm. Otherwise all changes are computed in float64.
    """
    widest = max(steps)
    bent = _moved(bench, site, samples, units(torch.float32), widest) - widest * slopes
    sizes = widest * slopes.std(dim=1, correction=0)
    if (bent.square().mean(dim=1).sqrt() / sizes).square().mean() <= NEAR**2:  # false for nan
        return torch.stack([step * slopes + (step / widest) ** 2 * bent for step in steps])
    return torch.stack([_moved(bench, site, samples, units(torch.float64), step) for step in steps])


def _moved(bench: ProbeContext, site: int, samples: slice, units: Tensor, step: float) -> Tensor:
    """Compute ℓ(h + εv) − ℓ(h) for a slice of the samples in the precision of the directions, (n, V).

    Both losses come from one pass, because the first direction is zero. So they have the same rounding.
    """
    state = bench.states[site][samples].to(units.dtype)
    pushed = torch.add(flat(state).unsqueeze(1), units, alpha=step).unflatten(2, state.shape[1:])
    losses = bench.losses_from(site, pushed, samples.start)
    return losses[:, 1:] - losses[:, :1]


def pearson(left: Tensor, right: Tensor) -> Tensor:
    """Correlate over the last dimension, (…, n) → (…); nan if an argument is constant or not finite."""
    return (_standardised(left) * _standardised(right)).sum(dim=-1).clamp(-1.0, 1.0)


def _standardised(values: Tensor) -> Tensor:
    """Subtract the mean from the values, and scale them to norm one.

    The values are first divided by the largest absolute value, because the squares of numbers near 1e-170 would underflow. The
    result is nan if the values are constant or not finite.
    """
    scaled = values / values.abs().amax(dim=-1, keepdim=True)
    centred = scaled - scaled.mean(dim=-1, keepdim=True)
    norms = torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
    return centred / torch.where(norms > FLAT * values.shape[-1] ** 0.5, norms, torch.nan)


STEP = 1e-3
OF_CREDIT = ("rho", "rho_samples", "rho_defined", "rho_absolute", "rho_absolute_samples")
CONTROLS = ("rho_bp", "rho_bp_samples", "rho_random", "rho_random_samples")


class PerturbationCorrelation(Diagnostic):
    card = DiagnosticCard(
        name="rho",
        symbol="ρ_l",
        line="Pearson correlation of ⟨c_l, εv⟩ with ℓ(h_l + εv) − ℓ(h_l) over random unit directions v of the complete state, "
        "pooled over samples and directions; _samples: mean of the samples' correlations; rho_defined: number of samples that "
        "have a correlation",
        quantities=(*OF_CREDIT, *CONTROLS),
        unit="correlation; rho_defined: samples",
        range="−1 to 1; _bp (the exact gradient) is near 1, _random (a random unit credit) near 0",
        cannot_tell="whether a step of the size used in training helps, because ε is much smaller; anything, if _bp is far from 1",
        source="arXiv 2606.21126, perturbation correlation ρ with ε = 1e-3 (this is rho_absolute); ε relative to ‖h_l‖, the "
        "form per sample, and N/A in degenerate cases: this project",
        version=2,
        when="final",
        needs_credit=OF_CREDIT,
        conventions={
            "rho_directions": DIRECTIONS,
            "rho_float32_up_to": NEAR,
            "rho_samples": PUSHED,
            "rho_step": f"{STEP:g} of the median of the samples' norms of h_l; rho_absolute: {STEP:g}",
        },
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute ρ, the correlation of ⟨c_l, εv⟩ with the change of the loss, and two controls at every site."""
        if reason := absence(observation):
            return Measured(sites={name: missing(observation.sites, reason) for name in self.card.quantities})
        norms = [typical_norm(state) for state in observation.bench.states]
        bench = perturbed_samples(observation.bench)
        candidates = [_candidates(bench, site) for site in range(len(norms))]
        with torch.no_grad():
            pushed = push(bench, candidates, [(STEP * norm, STEP) for norm in norms])
        rows = [_site(bench, norms[site], *pushed[site]) for site in range(len(norms))]
        return Measured(sites={name: tuple(row[name] for row in rows) for name in self.card.quantities})


def typical_norm(state: Tensor) -> float:
    """Compute the median over samples of the norm of the complete state (N, …)."""
    return float(np.median(torch.linalg.vector_norm(flat(state), dim=1).cpu().numpy()))


def _candidates(bench: ProbeContext, site: int) -> Tensor:
    """Return the exact gradient, a random unit credit and the method's credit, (N, features, 3).

    If the method has no credit, the third candidate is zero. Without it, matrix products would be rounded differently, and the two
    controls would change.
    """
    exact = flat(bench.gradients[site])
    gaussian = torch.randn(exact.shape, generator=bench.generator(f"rho/random/{site}"), dtype=torch.float64)
    random_credit = (gaussian / torch.linalg.vector_norm(gaussian, dim=1, keepdim=True)).to(exact.device)
    credit = torch.zeros_like(exact) if isinstance(bench.credits, Unavailable) else flat(bench.credits[site])
    return torch.stack([exact, random_credit, credit], dim=2)


def _site(bench: ProbeContext, norm: float, predicted: Tensor, changes: Tensor) -> dict[str, Reading]:
    """Compute the metrics of one site from predictions (3, N, V) and changes (2, N, V)."""
    by_name: dict[str, Reading] = {}
    # In changes[0], ε is relative to ‖h_l‖; in changes[1], ε is that of the paper. This is the order of the steps in `measure`.
    # `predicted` is ⟨c, v⟩ without ε, because ε is constant at a site and cancels in a correlation. tests/diagnostics/test_rho.py
    # checks both values of ε.
    relative = step_refusal(STEP * norm, norm)
    for prefix, credit in (("rho_bp", 0), ("rho_random", 1)):
        readings = correlations(predicted[credit], changes[0], bench.losses, relative)
        by_name[prefix], by_name[f"{prefix}_samples"], _ = readings
    if isinstance(bench.credits, Unavailable):
        return by_name | dict.fromkeys(OF_CREDIT, Reading(None, bench.credits.reason))
    by_name["rho"], by_name["rho_samples"], by_name["rho_defined"] = correlations(
        predicted[2], changes[0], bench.losses, relative
    )
    absolute = correlations(predicted[2], changes[1], bench.losses, step_refusal(STEP, norm))
    by_name["rho_absolute"], by_name["rho_absolute_samples"], _ = absolute
    return by_name


def correlations(
    predicted: Tensor, changes: Tensor, losses: Tensor, refusal: str = ""
) -> tuple[Reading, Reading, Reading]:
    """Correlate the predicted with the actual changes of the loss.

    All three readings are N/A with the same reason if `refusal` is given, or if no sample has a correlation (for example, if the
    credit is zero).

    Args:
        predicted: predictions ⟨c, v⟩, (N, V).
        changes: changes of each sample's loss, (N, V), relative to the loss of the same sample. If the changes were relative to
            the mean loss, the pooled correlation would measure how samples differ (tests/diagnostics/test_rho.py).
        losses: losses without perturbation, (N,).
        refusal: a known reason why there is no correlation, such as a step of zero. It is empty if no reason is known.

    Returns:
        Three readings: the correlation pooled over samples and directions, the mean of the samples' correlations, and the number
        of samples in that mean.
    """
    reason = refusal
    if not reason and (predicted == 0).all():
        reason = "the credit is exactly zero for every sample"
    if not reason and not (predicted.isfinite() & changes.isfinite()).all(dim=1).any():
        reason = not_finite("credit or loss of every sample")
    rows = pearson(predicted, changes)  # (N,)
    rows = rows[rows.isfinite() & is_resolved(changes.std(dim=1, correction=0), losses)]
    if not reason and len(rows) == 0:
        reason = "for every sample, the credit is zero or the change of the loss is not larger than the rounding error of float64"
    if reason:
        none = Reading(None, reason)
        return none, none, none
    return _pooled(predicted, changes, losses), Reading.of(rows.mean()), Reading(float(len(rows)))


def _pooled(predicted: Tensor, changes: Tensor, losses: Tensor) -> Reading:
    is_broken = ~(predicted.isfinite() & changes.isfinite()).all(dim=1)
    if is_broken.any():
        return Reading(None, not_finite(f"credit or loss of {int(is_broken.sum())} of {len(is_broken)} samples"))
    typical = losses.abs().clamp(min=1.0).square().mean().sqrt()
    if not is_resolved(changes.std(correction=0), typical):
        return Reading(None, "the change of the loss is not larger than the rounding error of float64")
    return Reading.of(pearson(predicted.flatten(), changes.flatten()))


def step_refusal(step: float, norm: float) -> str:
    """Return why steps ε of size `step` have no meaning at this median norm of the states, or ""."""
    if not np.isfinite(norm):
        return not_finite("the median norm of the states")
    if step == 0:
        return "the step ε is zero, because it is proportional to the median norm of the states, which is zero"
    if step < ROUNDINGS * np.finfo(np.float64).eps * norm:
        return f"ε = {step:g} is smaller than the float64 rounding of states with norm {norm:.3g}"
    return ""


PLUGIN = PerturbationCorrelation()
