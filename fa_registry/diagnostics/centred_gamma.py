"""Diagnostic centred_gamma: Γ without the direction that all samples share."""

from __future__ import annotations

from torch import Tensor

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, sample_cosines
from fa_registry.diagnostics.gamma import gamma_refusals, no_gamma
from fa_registry.records import Reading

ROUNDING = 1e-12  # share of the norm that the subtraction of equal rows leaves at most, in float64
NAMES = ("gamma_centred", "gamma_centred_mid")


class GammaCentred(Diagnostic):
    card = DiagnosticCard(
        name="centred_gamma",
        symbol="Γ centred",
        line="cosine of credit and gradient after the means over the batch are subtracted, all samples as one vector; _mid: at "
        "site ⌊L/2⌋",
        quantities=NAMES,
        unit="cosine",
        range="−1 to 1; near 0 if credit and gradient agree only in a direction that all samples share",
        cannot_tell="whether the shared direction itself is useful: a gradient may have nothing else",
        source="this project; the centring is that of centred kernel alignment (Cortes, Mohri and Rostamizadeh 2012)",
        when="final",
        needs_credit=NAMES,
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the cosine of (c − mean c) and (g − mean g) at every site, in float64.

        The rows of the batch are one vector, so rows with a large gradient weigh more. With one cosine per row, a row with a tiny
        gradient would be −mean g after the subtraction, and its cosine would be that of the shared direction.
        """
        if reason := no_gamma(observation):
            row = missing(observation.sites, reason)
        else:
            row = tuple(
                Reading(None, refusal) if refusal else _cosine(observation.credits[site], observation.gradients[site])
                for site, refusal in enumerate(gamma_refusals(observation))
            )
        return Measured(sites={NAMES[0]: row}, scalars={NAMES[1]: row[(observation.sites - 1) // 2]})


def _cosine(credit: Tensor, gradient: Tensor) -> Reading:
    rows = [tensor.double() for tensor in (credit, gradient)]  # 2 × (N, D)
    centred_rows = [row - row.mean(dim=0) for row in rows]
    if any(centred.norm() <= ROUNDING * row.norm() for row, centred in zip(rows, centred_rows, strict=True)):
        return Reading(None, "credit or gradient is the same for every sample, so nothing is left without the mean")
    return Reading.of(sample_cosines(*(centred.reshape(1, -1) for centred in centred_rows)).item())


PLUGIN = GammaCentred()
