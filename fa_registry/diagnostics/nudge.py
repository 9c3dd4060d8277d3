"""Diagnostic nudge: change of the loss after a small step against the credit."""

from __future__ import annotations

import torch
from torch import Tensor

from fa_registry.diagnostics._probe import (
    PUSHED,
    ProbeContext,
    Unavailable,
    absence,
    flat,
    is_resolved,
    perturbed_samples,
)
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing
from fa_registry.records import Reading

STEP = 0.01
NORM_EPS = 1e-6  # the paper's recipe: c / (rms over features + 1e-6)
OF_CREDIT = ("nudge", "nudge_rms")


class Nudge(Diagnostic):
    card = DiagnosticCard(
        name="nudge",
        symbol="Δℓ_l",
        line=f"mean over samples of ℓ(h_l − η ‖h_l‖ c_l/‖c_l‖) − ℓ(h_l), η = {STEP:g}; _bp: with the exact gradient in place of "
        "c_l; _rms: the paper's ℓ(h_l − η c_l/(rms(c_l) + 1e-6)) − ℓ(h_l)",
        quantities=(*OF_CREDIT, "nudge_bp"),
        unit="nats of cross entropy",
        range="any sign; a negative value is good; _bp shows the value of the best direction, the exact gradient",
        cannot_tell="whether the block before the site can produce the step; _rms also depends on the scale of the state",
        source="arXiv 2606.21126, nudge with η = .01 (this is nudge_rms); step relative to ‖h_l‖: this project",
        when="final",
        needs_credit=OF_CREDIT,
        conventions={"nudge_step": STEP, "nudge_samples": PUSHED},
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the mean change of the loss after one step *against* the credit.

        A negative change is good. At every site, the state of each sample moves from h_l to h_l − η‖h_l‖c_l/‖c_l‖, where the norms
        are those of the sample. tests/diagnostics/test_nudge.py compares the metric with closed forms. This test fails if the sign
        is wrong, or if the norms are those of the whole batch.
        """
        if reason := absence(observation):
            return Measured(sites={name: missing(observation.sites, reason) for name in self.card.quantities})
        bench = perturbed_samples(observation.bench)
        rows = [_site(bench, site) for site in range(len(bench.states))]
        return Measured(sites={name: tuple(row[name] for row in rows) for name in self.card.quantities})


def _site(bench: ProbeContext, site: int) -> dict[str, Reading]:
    """Compute all metrics of one site with one forward pass over all shifted states.

    If there are no credits, the pass uses credits of zero. Without these credits, the pass would have fewer shifted states, and
    the control nudge_bp would be rounded differently.
    """
    state = flat(bench.states[site])
    credit = torch.zeros_like(state) if isinstance(bench.credits, Unavailable) else flat(bench.credits[site])
    steps = {
        "nudge": relative_step(state, credit),
        "nudge_rms": rms_step(credit),
        "nudge_bp": relative_step(state, flat(bench.gradients[site])),
    }
    nudged = torch.stack([state - step for step in steps.values()], dim=1)  # (N, 3, features)
    losses = bench.losses_from(site, nudged.reshape(*nudged.shape[:2], *bench.states[site].shape[1:]))  # (N, 3)
    changes = losses - bench.losses.unsqueeze(1)
    readings = {name: _mean(step, changes[:, index], bench.losses) for index, (name, step) in enumerate(steps.items())}
    if isinstance(bench.credits, Unavailable):
        readings |= dict.fromkeys(OF_CREDIT, Reading(None, bench.credits.reason))
    return readings


def relative_step(state: Tensor, credit: Tensor) -> Tensor:
    """Compute the step η ‖h‖ c/‖c‖ per sample, (N, features), which is zero for a zero credit."""
    sizes, norms = (torch.linalg.vector_norm(rows, dim=1, keepdim=True) for rows in (state, credit))
    return STEP * sizes * credit / torch.where(norms == 0, 1.0, norms)


def rms_step(credit: Tensor) -> Tensor:
    """Compute the step η c/(rms(c) + 1e-6) per sample, (N, features)."""
    return STEP * credit / (credit.square().mean(dim=1, keepdim=True).sqrt() + NORM_EPS)


def _mean(steps: Tensor, changes: Tensor, losses: Tensor) -> Reading:
    """Compute the mean change of the loss over the samples whose step is not zero."""
    is_moved = ~(steps == 0).all(dim=1)  # nan counts as a move and makes the mean not finite
    if not is_moved.any():
        return Reading(None, "for every sample, the credit or the state is exactly zero")
    if changes[is_moved].isfinite().all() and not is_resolved(changes[is_moved].abs(), losses[is_moved]).any():
        return Reading(None, "the change of the loss is not larger than the rounding error of float64")
    return Reading.of(changes[is_moved].mean())


PLUGIN = Nudge()
