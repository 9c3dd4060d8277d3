"""Diagnostic gamma: cosine Γ between a method's credit and the reference gradient.

Other diagnostics that compute cosines with g_l use the functions of this module to decide whether Γ has a value and which samples
count.
"""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, sample_cosines
from fa_registry.diagnostics.fidelity import ALL_FITTED, fidelity_reading
from fa_registry.metrics import NOT_CREDITED as NOT_CREDITED
from fa_registry.records import Reading, not_finite

NUMBERS = ("gamma", "gamma_q25", "gamma_median", "gamma_q75", "gamma_samples", "gamma_batch")
LEAST_FIDELITY = 0.99  # protocol.md §1: a reference with a lower fidelity is numerical noise, and gives no Γ


def no_gamma(observation: Observation) -> str:
    """Return why Γ has no value (no credits, or no meaning according to the card), or an empty text."""
    return observation.no_credits if observation.credits is None else observation.no_gamma


def gamma_refusals(observation: Observation) -> list[str]:
    """Return one text per site of an observation with credits: why Γ has no value, or an empty string."""
    first = observation.first_credited
    credited = (
        refusal(observation, site, cosines) for site, cosines in enumerate(observation.alignments) if site >= first
    )
    return [*[NOT_CREDITED] * first, *credited]


def refusal(observation: Observation, reference: int, cosines: np.ndarray) -> str:
    """Return why the mean of these cosines is not a valid Γ, or an empty string if it is valid.

    Args:
        observation: the Observation, from which the reference gradient and its fidelity are read.
        reference: site of the reference gradient.
        cosines: cosines of the samples with the reference gradient, (N,).
    """
    norms = observation.gradient_norms[reference]
    if reason := observation.zero_reason(reference):
        return reason
    if not np.isfinite(norms).any():
        return not_finite("the reference gradient of every sample")
    if np.isnan(cosines).all():
        return "credit or gradient is zero or not finite for every sample"
    if not observation.resolved.any():
        return ALL_FITTED
    if observation.fidelities is None:
        return ""
    fidelity = fidelity_reading(observation, reference)
    if fidelity.value is not None and fidelity.value < LEAST_FIDELITY:
        return f"the reference gradient is numerical noise: fidelity {fidelity.value:.4f} < {LEAST_FIDELITY}"
    return ""


def defined(cosines: np.ndarray) -> np.ndarray:
    """Return the cosines that are not nan. A nan means that a vector is zero or not finite."""
    return cosines[~np.isnan(cosines)]


class Gamma(Diagnostic):
    card = DiagnosticCard(
        name="gamma",
        symbol="Γ_l",
        line="cos(c_l, g_l) at the site where the credit is used, mean over samples, in float64 and without clamping",
        quantities=NUMBERS,
        unit="cosine",
        range="−1 to 1",
        cannot_tell="whether training along c_l helps; at a site where c_l = g_l by construction, Γ = 1 shows nothing",
        source="arXiv 2606.21126, Γ; the angle of Lillicrap et al. 2016. Float64 without a clamp: this project",
        needs_credit=NUMBERS,
        bibtex="""@article{lillicrap2016random,
  title={Random synaptic feedback weights support error backpropagation for deep learning},
  author={Lillicrap, Timothy P. and Cownden, Daniel and Tweed, Douglas B. and Akerman, Colin J.},
  journal={Nature Communications}, volume={7}, pages={13276}, year={2016}
}""",
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute mean and quartiles over samples of cos(c_l, g_l), at every site.

        Further metrics are gamma_samples, the number of samples with a defined cosine, and gamma_batch, the cosine of all samples
        as one vector. Cosines are computed in float64. If Γ is not valid at a site, the readings contain the reason instead of
        values.
        """
        if reason := no_gamma(observation):
            return Measured(sites={name: missing(observation.sites, reason) for name in self.card.quantities})
        rows: dict[str, list[Reading]] = {name: [] for name in self.card.quantities}
        for site, refusal in enumerate(gamma_refusals(observation)):
            absent = dict.fromkeys(NUMBERS, Reading(None, refusal)) if refusal else {}
            row = absent or _site(observation, site)
            for name in self.card.quantities:
                rows[name].append(row[name])
        return Measured(sites={name: tuple(row) for name, row in rows.items()})


def _site(observation: Observation, site: int) -> dict[str, Reading]:
    """Compute the metrics of one site. Large gradients weigh more in gamma_batch than in gamma."""
    cosines = defined(observation.alignments[site])
    flat = [rows.reshape(1, -1) for rows in (observation.credits[site], observation.gradients[site])]
    values = [cosines.mean(), *np.quantile(cosines, [0.25, 0.5, 0.75]), len(cosines), sample_cosines(*flat).item()]
    return {name: Reading.of(value) for name, value in zip(NUMBERS, values, strict=True)}


PLUGIN = Gamma()
