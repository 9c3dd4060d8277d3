"""Diagnostic gamma_flat: Γ of maps as flattened vectors.

`gamma` compares the sums over the positions of a map (docs/decisions/05). Most publications on convolutions flatten the map.
"""

from __future__ import annotations

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, sample_cosines
from fa_registry.diagnostics.gamma import defined, gamma_refusals, no_gamma
from fa_registry.records import Reading
from fa_registry.token_axes import broadcast_over_positions

NAME = "gamma_flat"
NO_MAP = "the state of this site is not a map (N, C, H, W), so there is nothing to flatten"
UNDEFINED = "credit or gradient is zero or not finite for every sample"


class GammaFlat(Diagnostic):
    card = DiagnosticCard(
        name=NAME,
        symbol="Γ map",
        line="cos(c_l, g_l) of flattened maps (N, C·H·W), mean over samples; Γ compares their sums over positions",
        quantities=(NAME,),
        unit="cosine",
        range="−1 to 1",
        cannot_tell="whether the mean over positions is aligned, which gamma shows; a credit (N, D) is constant over positions",
        source="convention of publications on convolutions; the convention of gamma is docs/decisions/05",
        when="final",
        needs_credit=(NAME,),
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the mean over samples of the cosine of flattened maps, in float64 and without clamping.

        The metric is N/A at a site whose state is not a map. A credit (N, D) is spread as c/P over the P positions of the map.
        """
        has_maps = any(gradient.dim() == 4 for gradient in observation.full_gradients)
        if reason := no_gamma(observation) or (observation.no_full_gradients if has_maps else NO_MAP):
            return Measured(sites={NAME: missing(observation.sites, reason)})
        rows = (_site(observation, site, refusal) for site, refusal in enumerate(gamma_refusals(observation)))
        return Measured(sites={NAME: tuple(rows)})


def _site(observation: Observation, site: int, refusal: str) -> Reading:
    credit, gradient = observation.full_credits[site], observation.full_gradients[site]
    if gradient.dim() != 4 or refusal:
        return Reading(None, refusal or NO_MAP)
    credit = broadcast_over_positions(credit, gradient)
    cosines = defined(sample_cosines(credit.flatten(1), gradient.flatten(1)).cpu().numpy())
    return Reading.of(cosines.mean()) if len(cosines) else Reading(None, UNDEFINED)


PLUGIN = GammaFlat()
