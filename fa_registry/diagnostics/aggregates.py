"""Diagnostic aggregates: means and medians of Γ over sites and samples.

There are eight aggregates. First the mean or the median over samples is taken, then the mean or the median over sites, with or
without site 0. The spread is the largest aggregate minus the smallest one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation
from fa_registry.diagnostics.gamma import NOT_CREDITED, defined, gamma_refusals, no_gamma
from fa_registry.metrics import HEADLINE_GAMMA
from fa_registry.records import Reading

REDUCE: dict[str, Callable[[np.ndarray], float]] = {"mean": np.mean, "median": np.median}
NAMES = tuple(
    f"gamma_{scope}_{over_sites}_{over_samples}"
    for scope in ("deep", "all")
    for over_sites in REDUCE
    for over_samples in REDUCE
)
QUANTITIES = (HEADLINE_GAMMA, *NAMES, "gamma_spread")


class Aggregates(Diagnostic):
    card = DiagnosticCard(
        name="aggregates",
        symbol="Γ̄",
        line="cos(c_l, g_l): mean or median over samples, then mean or median over sites; deep: over sites 1..L; all: over "
        "sites 0..L, without site 0 if no parameter learns from its credit",
        quantities=QUANTITIES,
        unit="cosine",
        range="−1 to 1; spread 0 to 2",
        cannot_tell="which sites determine the aggregates (see Γ per site)",
        source="arXiv 2606.21126 on the effect of aggregation on Γ; the eight aggregates and their spread: this project",
        needs_credit=QUANTITIES,
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the eight aggregates of Γ and the spread of these aggregates.

        The value of gamma_deep_mean_mean is also reported as gamma_deep_mean, with the mean cosine of every sample if all cosines
        are defined. Sites whose credit is exact by construction are excluded.
        """
        if absence_reason := no_gamma(observation):
            return Measured(scalars=dict.fromkeys(QUANTITIES, Reading(None, absence_reason)))
        refusals = gamma_refusals(observation)
        sites = range(observation.first_credited, observation.sites)
        counted_sites = [site for site in sites if not (observation.exact and observation.exact[site])]
        if not counted_sites:
            reason = "the credit is exact by construction at every site" if sites else NOT_CREDITED
            return Measured(scalars=dict.fromkeys(QUANTITIES, Reading(None, reason)))
        reduced = {
            site: {name: reduce(defined(observation.alignments[site])) for name, reduce in REDUCE.items()}
            for site in counted_sites
            if not refusals[site]
        }
        values = {name: _aggregate(name, reduced, counted_sites, refusals) for name in NAMES}
        defined_values = [reading.value for reading in values.values() if reading.value is not None]
        spread = (
            Reading(max(defined_values) - min(defined_values))
            if defined_values
            else Reading(None, "no aggregate has a value")
        )
        headline = values["gamma_deep_mean_mean"]
        by_sample = observation.alignments[[site for site in counted_sites if site > 0]]
        # the mean over sites of a sample is defined only if its cosine is defined at every site
        has_scores = headline.value is not None and not np.isnan(by_sample).any()
        return Measured(
            scalars={HEADLINE_GAMMA: headline, **values, "gamma_spread": spread},
            cosines={HEADLINE_GAMMA: by_sample.mean(axis=0)} if has_scores else {},
        )


def _aggregate(
    name: str, reduced: Mapping[int, Mapping[str, float]], counted_sites: Sequence[int], refusals: Sequence[str]
) -> Reading:
    """Compute one aggregate of Γ over `counted_sites`, whose credit is not exact by construction.

    `reduced` contains the mean and the median over samples for each counted site with a valid Γ. `refusals` contains, for every
    site, the reason why Γ is not valid, or an empty string. If Γ is not valid at a counted site, the aggregate is N/A.
    """
    _, scope, over_sites, over_samples = name.split("_")
    sites = [site for site in counted_sites if scope == "all" or site > 0]
    if not sites:
        return Reading(None, "the credit of every site that this aggregate uses is exact by construction")
    refusal_texts = [f"site {site}: {refusals[site]}" for site in sites if refusals[site]]
    if refusal_texts:
        return Reading(None, refusal_texts[0])
    return Reading.of(REDUCE[over_sites](np.array([reduced[site][over_samples] for site in sites])))


PLUGIN = Aggregates()
