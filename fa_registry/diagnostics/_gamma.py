"""When Γ is a number at all, and which samples it is a mean over. Shared by gamma, its aggregates and the norm ratio."""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Observation
from fa_registry.diagnostics.fidelity import fidelity_reading
from fa_registry.records import NOT_FINITE

NUMBERS = ("gamma", "gamma_q25", "gamma_median", "gamma_q75", "gamma_samples", "gamma_batch")
LEAST_FIDELITY = 0.99  # protocol.md §1: below it the reference is numerical noise, and a cosine with noise is no Γ


def gamma_refusals(observation: Observation) -> list[str]:
    """Per site, why Γ has no value there; empty where it has one. Needs `alignments`."""
    reasons = []
    for site, cosines in enumerate(observation.alignments):
        fidelity = fidelity_reading(observation.fidelities[site]).value if observation.fidelities is not None else None
        norms = observation.gradient_norms[site]
        if (norms == 0).all():
            reasons.append("the reference gradient is exactly zero for every sample")
        elif not np.isfinite(norms).any():
            reasons.append(f"{NOT_FINITE}: the reference gradient, for every sample")
        elif np.isnan(cosines).all():
            reasons.append("credit or gradient is zero or not finite for every sample")
        elif fidelity is not None and fidelity < LEAST_FIDELITY:
            reasons.append(f"the reference gradient is noise: fidelity {fidelity:.4f} < {LEAST_FIDELITY}")
        else:
            reasons.append("")
    return reasons
