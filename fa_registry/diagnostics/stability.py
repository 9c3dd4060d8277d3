"""Diagnostic stability: do batches agree on the direction of the mean gradient?"""

from __future__ import annotations

import torch
from torch import Tensor

from fa_registry.diagnostics._probe import absence
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing
from fa_registry.records import Reading

BATCHES = 8
BATCH = 128


class Stability(Diagnostic):
    card = DiagnosticCard(
        name="stability",
        symbol="S_l",
        line=f"cosine between the mean gradients of two of {BATCHES} disjoint batches of {BATCH}, mean over all pairs; _mid: at "
        "site ⌊L/2⌋",
        quantities=("stability", "stability_mid"),
        unit="cosine",
        range="−1/7 to 1; a high value means that the gradients of all batches have nearly the same direction",
        cannot_tell="whether training is healthy: according to its author, the metric does not clearly distinguish methods",
        source="arXiv 2606.21126, first release, rule (c): cross-batch stability",
        when="final",
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the cosine between the mean gradients of two batches, and its mean over all pairs.

        The metrics are the value at every site and the value at site ⌊L/2⌋. For an odd L, this site is the lower of the two middle
        sites, as published (tests/diagnostics/test_fidelity.py).
        """
        reason = absence(observation, "batch_gradients")
        row = (
            missing(observation.sites, reason)
            if reason
            else tuple(mean_pairwise_cosine(rows) for rows in observation.bench.batch_gradients())
        )
        return Measured(sites={"stability": row}, scalars={"stability_mid": row[(observation.sites - 1) // 2]})


def mean_pairwise_cosine(rows: Tensor) -> Reading:
    """Compute the mean cosine over all K(K−1)/2 pairs of different rows.

    `rows` is a float64 tensor (K, D) with K ≥ 2. The mean is at least −1/(K−1). The result is N/A if a row is zero or not finite.
    """
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    if not norms.isfinite().all():
        # The reason does not begin with NOT_FINITE, because a rule would treat such a value as above its limit.
        return Reading(None, "the mean gradient of a batch is not finite")
    if (norms == 0).any():
        return Reading(None, "the mean gradient of a batch is exactly zero")
    units = rows / norms
    cosines = units @ units.T  # (K, K)
    return Reading.of(cosines[torch.ones_like(cosines).triu(diagonal=1).bool()].mean())


PLUGIN = Stability()
