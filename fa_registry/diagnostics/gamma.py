"""Γ: cosine between a method's credit and the reference gradient, and what may be said of it."""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics._gamma import NUMBERS, defined, gamma_refusals, no_gamma
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, sample_cosines
from fa_registry.records import Reading


class Gamma(Diagnostic):
    card = DiagnosticCard(
        name="gamma",
        symbol="Γ_l",
        line="mean over samples of cos(c_l, g_l) at the site where the credit acts, in float64 and unclamped",
        quantities=NUMBERS,
        unit="cosine",
        range="−1 to 1",
        cannot_tell="whether training along c_l helps, nor anything where c_l = g_l by construction",
        source="arXiv 2606.21126, Γ; the angle of Lillicrap et al. 2016. Float64 without a clamp: this project",
        needs_credit=NUMBERS,
        bibtex="""@article{lillicrap2016random,
  title={Random synaptic feedback weights support error backpropagation for deep learning},
  author={Lillicrap, Timothy P. and Cownden, Daniel and Tweed, Douglas B. and Akerman, Colin J.},
  journal={Nature Communications}, volume={7}, pages={13276}, year={2016}
}""",
    )

    def measure(self, observation: Observation) -> Measured:
        """Γ with its quartiles at every site, per-sample cosines in float64; N/A with the reason where a site refuses one."""
        if absent := no_gamma(observation):
            return Measured(sites={name: missing(observation.sites, absent) for name in self.card.quantities})
        rows: dict[str, list[Reading]] = {name: [] for name in self.card.quantities}
        for site, refusal in enumerate(gamma_refusals(observation)):
            row = _absent(refusal) if refusal else _site(observation, site)
            for name in self.card.quantities:
                rows[name].append(row[name])
        return Measured(sites={name: tuple(row) for name, row in rows.items()})


def _absent(reason: str) -> dict[str, Reading]:
    return dict.fromkeys(Gamma.card.quantities, Reading(None, reason))


def _site(observation: Observation, site: int) -> dict[str, Reading]:
    """gamma_batch is the cosine of the whole batch as one vector: large gradients weigh more there than in the mean."""
    cosines = defined(observation.alignments[site])
    flat = [rows.reshape(1, -1) for rows in (observation.credits[site], observation.gradients[site])]
    values = [cosines.mean(), *np.quantile(cosines, [0.25, 0.5, 0.75]), len(cosines), sample_cosines(*flat).item()]
    return {name: Reading.of(value) for name, value in zip(NUMBERS, values, strict=True)}


PLUGIN = Gamma()
