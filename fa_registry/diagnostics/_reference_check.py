"""Check of the reference gradient by finite differences of the loss, which need no backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry.diagnostics._forward_gradient import SEED, Shifted, are_samples_mixed, in_state, steps_of
from fa_registry.records import Reading, Reason, unchecked_gradient, wrong_gradient

ROUNDS = 8  # smallest number of rounds in float64, of two passes each; a sample is shifted at one site per round
# Largest deviations that rounding and the error of a difference can explain; far below .1, where a cosine begins to change.
TOLERANCE = {torch.float64: 1e-3, torch.float32: 5e-2}
# Step sizes, relative to the state's root mean square. A shift across a kink of the loss gives no derivative, and small steps
# rarely cross a kink.
STEPS = {torch.float64: 1e-8, torch.float32: 1e-3}
RESOLVED = 3  # a slope below RESOLVED × (rounding of the loss / tolerance) is not compared
KINKS = "the loss has a kink in every direction that was tried, so it has no derivative to compare"
ADVICE = "use gradient='forward' in fa_registry.adapt, track or alignment to compute the gradient from the forward pass"


@dataclass(frozen=True)
class ReferenceCheck:
    """Result of checking a gradient by finite differences of the loss.

    Attributes:
        deviations: one Reading per site: ‖differences − ⟨g, v⟩‖ / ‖differences‖ over the samples and rounds of the site. Two kinds
            of samples are excluded: those with a kink of the loss, and those whose difference is below the rounding of the loss.
            If no sample remains, the Reading is 0 for a zero gradient, and otherwise has no value.
        objection: description of the deviation at the worst site, or an empty string if every site is within the tolerance.
        wrong: indices of the sites with a deviation above the tolerance, and of the sites that cannot be compared because of
            kinks.
    """

    deviations: tuple[Reading, ...]
    objection: str = ""
    wrong: tuple[int, ...] = ()


def check_reference(
    losses: Shifted,
    states: Sequence[Tensor],
    gradients: Sequence[Tensor],
    credits: Sequence[Tensor] | None = None,
    precision: torch.dtype = torch.float64,
) -> ReferenceCheck:
    """Compare ⟨g_l, v⟩ with central differences of the loss along v, at every site.

    In each round, every sample is shifted at one site only; the next round uses another site. If there are at least as many
    samples as sites, one pair of forward passes per round therefore covers all sites. The directions v are Gaussian. If there are
    credits, the first round uses the credits as directions. In float32, a round has four forward passes instead of two, and there
    are half as many rounds. The differences for two step sizes are then extrapolated (Richardson). If a site seems wrong and the
    samples depend on each other, all samples are shifted at one site, and the sum of the losses is compared.

    Args:
        losses: function from L+1 shifts to the losses of the samples, (N,), see `shifted_losses`.
        states, gradients: h_0..h_L, each (N, …), and ∂(Σ_i ℓ_i)/∂h_l in the same shapes.
        credits: c_0..c_L, one vector per sample, (N, D_l).
        precision: the coarsest precision in which the passes compute, float64 or float32.
    """
    count, samples = len(states), len(states[0])
    rounds = max(ROUNDS, -(-ROUNDS * count // samples)) // (1 if precision == torch.float64 else 2)
    generator = torch.Generator().manual_seed(SEED)
    pairs: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in states]
    unshifted_losses = losses([torch.zeros_like(state) for state in states])
    limit = TOLERANCE[precision]
    for round_index in range(rounds):
        site_of = (torch.arange(samples) + round_index) % count
        directions = [_direction(state, credits, site, round_index, generator) for site, state in enumerate(states)]
        masked = [direction * _column(site_of == site, direction) for site, direction in enumerate(directions)]
        slopes, has_kink, step_sizes = _differences(losses, unshifted_losses, states, masked, precision)
        rounding = (
            torch.finfo(precision).eps
            * unshifted_losses.abs().clamp(min=1)
            / step_sizes[site_of, torch.arange(samples)]
        )
        for site, direction in enumerate(directions):
            is_at_site = site_of.to(unshifted_losses.device) == site
            expected = (gradients[site].double() * direction).flatten(1).sum(1)
            pairs[site].append(
                (
                    slopes[is_at_site],
                    expected[is_at_site],
                    rounding.to(unshifted_losses.device)[is_at_site],
                    has_kink[is_at_site],
                )
            )
    sites = [tuple(map(torch.cat, zip(*rows, strict=True))) for rows in pairs]
    deviations = [_deviation(*site, limit) for site in sites]
    if _wrong(deviations, limit) and are_samples_mixed(losses, states, precision):
        sites = [
            _whole_batch(losses, unshifted_losses, states, gradients, site, precision, generator)
            for site in range(count)
        ]
        deviations = [_deviation(*site, limit) for site in sites]
    wrong_sites = _wrong(deviations, limit)
    return ReferenceCheck(
        tuple(deviations), _objection(wrong_sites, deviations, sites) if wrong_sites else "", tuple(wrong_sites)
    )


def _wrong(deviations: Sequence[Reading], limit: float) -> list[int]:
    """Return the sites whose deviation is above the limit, or is missing because of kinks."""
    return [
        site
        for site, reading in enumerate(deviations)
        if reading.reason == KINKS or (reading.value is not None and not reading.value <= limit)
    ]


def _objection(wrong_sites: Sequence[int], deviations: Sequence[Reading], sites: Sequence[Sequence[Tensor]]) -> Reason:
    worst = max(wrong_sites, key=lambda site: deviations[site].value or 0)
    if deviations[worst].value is None:
        return unchecked_gradient(f" at site {worst} by finite differences of the loss: {KINKS}")
    measured, expected, _, has_kink = sites[worst]
    index = int((measured - expected).abs().masked_fill(has_kink, 0).argmax())
    sites_text = ", ".join(map(str, wrong_sites))
    return wrong_gradient(
        f"at site{'s' * (len(wrong_sites) > 1)} {sites_text}: at site {worst} a directional derivative of "
        f"the loss is {measured[index]:.3g} according to finite differences, but {expected[index]:.3g} according to the "
        f"backward pass; {ADVICE}"
    )


def _direction(
    state: Tensor, credits: Sequence[Tensor] | None, site: int, round_index: int, generator: torch.Generator
) -> Tensor:
    """Return one direction per sample, in the shape of the state and with a root mean square near 1.

    In rounds 0, 2, 4, …, the direction is zero at every entry where the state is exactly zero, for example after a ReLU. A later
    pooling or ReLU has a kink at zero, so the loss may have no derivative there.
    """
    direction = torch.randn(state.shape, dtype=torch.float64, generator=generator).to(state.device)
    if credits is not None and round_index == 0 and credits[site].isfinite().all():
        credit = credits[site].double()
        rows = credit if credit.shape == state.shape else in_state(credit, state)
        rms = rows.square().flatten(1).mean(1).sqrt().view(-1, *[1] * (state.dim() - 1))
        direction = torch.where(rms > 0, rows / rms, direction)
    if round_index % 2:
        return direction
    masked_direction = direction * (state != 0)
    return torch.where(_column(masked_direction.flatten(1).any(1), state), masked_direction, direction)


def _column(mask: Tensor, like: Tensor) -> Tensor:
    return mask.to(like.device).view(-1, *[1] * (like.dim() - 1))


def _differences(
    losses: Shifted,
    unshifted_losses: Tensor,
    states: Sequence[Tensor],
    directions: Sequence[Tensor],
    precision: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the slope of the loss along the directions by central differences.

    Return the differences, (N,), a mask of the samples with a kink of the loss, (N,), and the step sizes, (L+1, N).
    """

    def one_sided(step: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return forward differences, backward differences and step sizes for a relative step."""
        steps = [steps_of(state, step) for state in states]
        shifts = [
            (step * direction).to(state.dtype) for step, direction, state in zip(steps, directions, states, strict=True)
        ]
        sizes = torch.stack([step.flatten() for step in steps])
        is_moved = torch.stack([direction.flatten(1).any(1) for direction in directions])
        size = (sizes * is_moved).sum(0)
        return (
            (losses(shifts) - unshifted_losses) / size,
            (unshifted_losses - losses([-shift for shift in shifts])) / size,
            sizes.cpu(),
        )

    up, down, sizes = one_sided(STEPS[precision])
    slope, has_kink = (up + down) / 2, _is_bent(up, down, precision)
    if precision != torch.float64:
        wide_slope = sum(one_sided(2 * STEPS[precision])[:2]) / 2
        slope = (4 * slope - wide_slope) / 3
    return slope, has_kink, sizes


def _is_bent(up: Tensor, down: Tensor, precision: torch.dtype) -> Tensor:
    """Return a mask of the samples whose forward difference and backward difference disagree.

    The error of the central difference is at most half the difference between the two.
    """
    return (up - down).abs() > TOLERANCE[precision] * torch.maximum(up.abs(), down.abs())


def _deviation(measured: Tensor, expected: Tensor, rounding: Tensor, has_kink: Tensor, limit: float) -> Reading:
    smallest_slope = RESOLVED / limit * rounding
    is_resolved = torch.maximum(measured.abs(), expected.abs()) > smallest_slope
    is_resolved |= ~(measured.isfinite() & expected.isfinite())
    if not is_resolved.any():
        is_flat = not expected.any() and not (measured.abs() > smallest_slope).any()
        return (
            Reading(0.0)
            if is_flat
            else Reading(None, "all finite differences of the loss are smaller than the rounding error of the loss")
        )
    is_resolved &= ~has_kink
    if not is_resolved.any():
        return Reading(None, KINKS)
    scale = measured[is_resolved].norm()
    error = (measured - expected)[is_resolved].norm() / (scale if scale > 0 else expected[is_resolved].norm())
    return Reading.of(error.item())


def _whole_batch(
    losses: Shifted,
    unshifted_losses: Tensor,
    states: Sequence[Tensor],
    gradients: Sequence[Tensor],
    site: int,
    precision: torch.dtype,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute finite differences of the batch's summed loss at one site.

    The function is for networks whose samples depend on each other. It runs 2 · ROUNDS / (number of sites) forward passes, but at
    least four. It returns differences, directional derivatives ⟨g, v⟩, roundings and the mask of kinks. Each has one entry per
    round.
    """
    rows, total = [], unshifted_losses.sum()
    for round_index in range(max(2, ROUNDS // len(states))):
        direction = _direction(states[site], None, site, round_index, generator)
        step = steps_of(states[site], STEPS[precision]).mean()
        shifts = [torch.zeros_like(state) for state in states]
        shifts[site] = (step * direction).to(states[site].dtype)
        up, down = (losses(shifts).sum() - total) / step, (total - losses([-shift for shift in shifts]).sum()) / step
        expected = (gradients[site].double() * direction).sum()
        rounding = torch.finfo(precision).eps * total.abs().clamp(min=1) / step
        rows.append(((up + down) / 2, expected, rounding, _is_bent(up, down, precision)))
    return tuple(map(torch.stack, zip(*rows, strict=True)))
