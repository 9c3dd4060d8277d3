"""fidelity: is a tiny reference gradient still exact, or numerical noise?"""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing
from fa_registry.records import Reading


class Fidelity(Diagnostic):
    card = DiagnosticCard(
        name="fidelity",
        symbol="cos(g₃₂, g₆₄)",
        line="mean over samples of the cosine between g_l computed in float32 and the same in float64",
        quantities=("fidelity", "fidelity_min"),
        unit="cosine",
        range="−1 to 1; 1 is exact",
        cannot_tell="errors common to both precisions",
        source="this project: is a small gradient also a wrong one?",
    )

    def measure(self, observation: Observation) -> Measured:
        """The mean over samples of cos(g_l in float32, g_l in float64) at every site, and the least of the sites.

        Of directions: a gradient of 1e-12 that is right to seven digits has fidelity 1 (tests/diagnostics/test_fidelity.py).
        """
        if observation.fidelities is None:
            absent = missing(observation.sites, "no float64 pass was made")
            return Measured(sites={"fidelity": absent}, scalars={"fidelity_min": absent[0]})
        means = tuple(fidelity_reading(values) for values in observation.fidelities)
        known = [reading.value for reading in means if reading.value is not None]
        lowest = Reading(min(known)) if known else Reading(None, means[0].reason)
        return Measured(sites={"fidelity": means}, scalars={"fidelity_min": lowest})


def fidelity_reading(values: np.ndarray) -> Reading:
    """Mean over the samples whose gradient is not exactly zero."""
    defined = values[~np.isnan(values)]
    if len(defined) == 0:
        return Reading(None, "the gradient is zero or not finite for every sample")
    return Reading.of(defined.mean())


PLUGIN = Fidelity()
