"""‖h_l‖ and its growth from site to site: is the stream's scale stable? (protocol D1)"""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, readings
from fa_registry.quantities import symbol_of
from fa_registry.records import Reading

FLOOR = 1e-12  # protocol.md: growth is divided by max(h_norm, 1e-12)


class HiddenNorm(Diagnostic):
    card = DiagnosticCard(
        name="h_norm",
        symbol="‖h_l‖",
        line="median over samples of the state's L2 norm, and its ratio to the site before",
        quantities=("h_norm", "growth", "h_L", "growth_max"),
        unit="h_norm: the state's own; growth: ratio",
        range="0 to infinity",
        cannot_tell="whether a large scale hurts accuracy: a LayerNorm before the head hides it from the loss",
        source="arXiv 2606.21126, D1 (scale stability)",
    )

    def measure(self, observation: Observation) -> Measured:
        """h_norm and growth at every site, from the medians over samples of ‖h_l‖ (protocol.md §1); growth starts at site 1."""
        norms = np.median(observation.hidden_norms, axis=1)
        with np.errstate(invalid="ignore"):  # inf / inf is a measurement too: nan, recorded as not finite
            growth = norms[1:] / np.maximum(norms[:-1], FLOOR)
        start = Reading(None, f"{symbol_of('growth')} starts at site 1")
        return Measured(
            sites={"h_norm": readings(norms), "growth": (start, *readings(growth))},
            scalars={"h_L": Reading.of(norms[-1]), "growth_max": largest(growth)},
        )


def largest(growth: np.ndarray) -> Reading:
    """The maximum over blocks; np.max passes a nan on, so it is not finite as soon as one of them is."""
    return Reading.of(growth.max()) if len(growth) else Reading(None, "the network has no block")


PLUGIN = HiddenNorm()
