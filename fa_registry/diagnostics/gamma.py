"""Γ: cosine between a method's credit and the reference gradient.

All diagnostics made of cosines with g_l use this module to decide whether Γ has a value and over which samples it is a mean.
"""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, sample_cosines
from fa_registry.diagnostics.fidelity import ALL_FITTED, fidelity_reading
from fa_registry.metrics import NOT_CREDITED as NOT_CREDITED
from fa_registry.records import NOT_FINITE, Reading

NUMBERS = ("gamma", "gamma_q25", "gamma_median", "gamma_q75", "gamma_samples", "gamma_batch")
LEAST_FIDELITY = 0.99  # protocol.md §1: below it the reference is numerical noise, and a cosine with noise is no Γ


def no_gamma(observation: Observation) -> str:
    """Return why Γ has no value at any site (no credits, or no meaning by the card), or ""."""
    return observation.no_credits if observation.credits is None else observation.no_gamma


def gamma_refusals(observation: Observation) -> list[str]:
    """Return per site why Γ has no value there, empty if it has one; needs `alignments`."""
    first = observation.first_credited
    credited = (
        refusal(observation, site, cosines) for site, cosines in enumerate(observation.alignments) if site >= first
    )
    return [*[NOT_CREDITED] * first, *credited]


def refusal(observation: Observation, reference: int, cosines: np.ndarray) -> str:
    """Return why the mean of `cosines` (N,) with the gradient of site `reference` is no valid Γ, or ""."""
    norms = observation.gradient_norms[reference]
    if (norms == 0).all():
        return "the reference gradient is exactly zero for every sample"
    if not np.isfinite(norms).any():
        return f"{NOT_FINITE}: the reference gradient, for every sample"
    if np.isnan(cosines).all():
        return "credit or gradient is zero or not finite for every sample"
    if observation.fidelities is None:
        return ""
    fidelity = fidelity_reading(observation, reference)
    if fidelity.reason == ALL_FITTED:
        return ALL_FITTED
    if fidelity.value is not None and fidelity.value < LEAST_FIDELITY:
        return f"the reference gradient is noise: fidelity {fidelity.value:.4f} < {LEAST_FIDELITY}"
    return ""


def defined(cosines: np.ndarray) -> np.ndarray:
    """Return the cosines that are defined: both vectors are finite and not zero."""
    return cosines[~np.isnan(cosines)]


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
        """Return Γ with its quartiles at every site, from per-sample cosines in float64.

        It is N/A, with the reason, at a site where Γ is not valid.
        """
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
    """Return the values of one site.

    gamma_batch is the cosine of the whole batch as one vector: large gradients weigh more in it than in the mean.
    """
    cosines = defined(observation.alignments[site])
    flat = [rows.reshape(1, -1) for rows in (observation.credits[site], observation.gradients[site])]
    values = [cosines.mean(), *np.quantile(cosines, [0.25, 0.5, 0.75]), len(cosines), sample_cosines(*flat).item()]
    return {name: Reading.of(value) for name, value in zip(NUMBERS, values, strict=True)}


PLUGIN = Gamma()
