"""Diagnostic norm_ratio: ratio ‖c_l‖/‖g_l‖ of the norms of credit and gradient."""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing
from fa_registry.records import Reading


class NormRatio(Diagnostic):
    card = DiagnosticCard(
        name="norm_ratio",
        symbol="‖c_l‖/‖g_l‖",
        line="norm of the credit divided by norm of the gradient, median over samples",
        quantities=("norm_ratio",),
        unit="ratio",
        range="0 to infinity",
        cannot_tell="the size of an update, because the paper's recipe normalises every credit before the update",
        source="this project",
        needs_credit=("norm_ratio",),
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the median over samples of ‖c_l‖/‖g_l‖ at every site.

        The metric is the median of the ratios, not the ratio of the medians. Samples with a gradient of exactly zero are excluded.
        Credit and gradient both refer to the summed loss, so the ratio does not depend on the batch size.
        """
        if observation.credit_norms is None:
            return Measured(sites={"norm_ratio": missing(observation.sites, observation.no_credits)})
        return Measured(sites={"norm_ratio": tuple(_ratio(observation, site) for site in range(observation.sites))})


def _ratio(observation: Observation, site: int) -> Reading:
    reference = observation.gradient_norms[site]
    defined = ~(reference == 0)
    if not defined.any():
        return Reading(None, observation.zero_reason(site))
    with np.errstate(invalid="ignore"):  # inf / inf is nan, recorded as not finite
        return Reading.of(np.median(observation.credit_norms[site][defined] / reference[defined]))


PLUGIN = NormRatio()
