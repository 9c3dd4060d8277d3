"""gain: how much of the output error reaches a site, whatever the error's own size."""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, readings


class Gain(Diagnostic):
    card = DiagnosticCard(
        name="gain",
        symbol="‖g_l‖/‖e‖",
        line="median over samples of the gradient's norm by the norm of the output error e = softmax(z) − onehot(y)",
        quantities=("gain",),
        unit="1 / unit of state",
        range="0 to infinity",
        cannot_tell="whether the direction that reaches the site is a useful one",
        source="this project: what a small ‖g_l‖ alone cannot tell",
    )

    def measure(self, observation: Observation) -> Measured:
        """gain at every site: the median of ‖g_l‖/‖e‖ over the samples whose output error is not exactly zero."""
        errors = observation.error_norms
        wrong = ~(errors == 0)  # a nan stays in; an error of exactly zero (softmax saturated) has no gain
        if not wrong.any():
            return Measured(
                sites={"gain": missing(observation.sites, "the output error is exactly zero for every sample")}
            )
        gains = observation.gradient_norms[:, wrong] / errors[wrong]
        return Measured(sites={"gain": readings(np.median(gains, axis=1))})


PLUGIN = Gain()
