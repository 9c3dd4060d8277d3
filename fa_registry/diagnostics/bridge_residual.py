"""Diagnostic bridge_residual: does a value network satisfy its recursion?"""

from __future__ import annotations

from torch import Tensor

from fa_registry.diagnostics._probe import absence
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing
from fa_registry.records import Reading


class BridgeResidual(Diagnostic):
    card = DiagnosticCard(
        name="bridge_residual",
        symbol="|V_φ − softmin V̄|",
        line="mean over samples of |V_φ(h_l, t_l, s) − softmin_k V̄(h_{l+1} + σξ_k, t_{l+1}, s)|; at site L: |V_φ − ℓ|",
        quantities=("bridge_residual",),
        unit="nats of cross entropy",
        range="0 to infinity",
        cannot_tell="whether the credit is right: the credit is the gradient of V_φ, which can be inaccurate although V_φ is "
        "accurate",
        source="arXiv 2606.21126, credit bridge",
        when="final",
        needs_credit=("bridge_residual",),
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the mean of |V_φ − softmin V̄| over samples, at every site.

        V_φ is the value network of the method credit_bridge, and its recursion requires V_φ = softmin V̄. The unit is that of the
        loss. The metric is N/A for a method without a value network. Absolute values are used, because residuals with opposite
        signs would cancel in the mean (tests/diagnostics/test_bridge_residual.py).
        """
        if reason := absence(observation, "bridge_residuals"):
            return Measured(sites={"bridge_residual": missing(observation.sites, reason)})
        residuals = observation.bench.bridge_residuals()
        return Measured(sites={"bridge_residual": tuple(_reading(rows) for rows in residuals)})


def _reading(residuals: Tensor) -> Reading:
    return Reading.of(residuals.double().abs().mean())


PLUGIN = BridgeResidual()
