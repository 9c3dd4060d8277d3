"""Diagnostic gain: gradient norm relative to the norm of the output error."""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, readings


class Gain(Diagnostic):
    card = DiagnosticCard(
        name="gain",
        symbol="‖g_l‖/‖e‖",
        line="norm of the gradient divided by the norm of the output error e = softmax(z) − onehot(y), median over samples",
        quantities=("gain",),
        unit="1 / unit of state",
        range="0 to infinity",
        cannot_tell="whether the direction of the gradient at the site is useful",
        source="this project, because ‖g_l‖ alone does not show how much of the error reaches the site",
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the median of ‖g_l‖/‖e‖ at every site over samples whose output error e is not zero."""
        errors = observation.error_norms
        has_error = ~(errors == 0)  # keeps nan; an error of exactly zero (softmax saturated) has no gain
        if not has_error.any():
            return Measured(
                sites={"gain": missing(observation.sites, "the output error is exactly zero for every sample")}
            )
        gains = observation.gradient_norms[:, has_error] / errors[has_error]
        return Measured(sites={"gain": readings(np.median(gains, axis=1))})


PLUGIN = Gain()
