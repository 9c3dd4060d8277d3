"""Diagnostic h_norm: norm ‖h_l‖ of the states, and the growth of this norm (protocol D1).

There are two growths: the ratio to the norm at the previous site, and the ratio to the norm at initialisation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fa_registry.diagnostics.base import (
    Diagnostic,
    DiagnosticCard,
    Measured,
    Observation,
    missing,
    readings,
    sample_norms,
    table,
)
from fa_registry.metrics import symbol_of
from fa_registry.records import Reading

FLOOR = 1e-12  # protocol.md: growth is divided by max(h_norm, 1e-12)


class HiddenNorm(Diagnostic):
    card = DiagnosticCard(
        name="h_norm",
        symbol="‖h_l‖",
        line="median over samples of the state's L2 norm, its ratio to the previous site, and its ratio to initialisation",
        quantities=("h_norm", "growth", "growth_init", "h_L", "growth_max", "growth_init_max"),
        unit="h_norm: unit of the state; growth, growth_init: ratio",
        range="0 to infinity",
        cannot_tell="whether a large scale of the states worsens the main metric: with a LayerNorm before the head, the loss "
        "does not depend on that scale",
        source="arXiv 2606.21126, D1 (scale stability); growth since initialisation: this project",
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the median over samples of ‖h_l‖, and the growth of this median (protocol.md §1).

        At each site, h_norm is the median, growth is h_norm divided by the median norm of the block's input (from site 1 on), and
        growth_init is h_norm divided by h_norm at initialisation. If a block names the norm that ends it, h_norm is measured before
        this norm. The scalar metric h_L is h_norm at site L. The scalar metrics growth_max and growth_init_max are the maxima over
        sites.
        """
        norms, inputs = median_norms(observation.stream_norms), median_norms(observation.hidden_norms)
        with np.errstate(invalid="ignore"):  # inf / inf is nan, recorded as not finite
            growth = norms[1:] / np.maximum(inputs[:-1], FLOOR)
        no_growth = Reading(None, f"{symbol_of('growth')} starts at site 1")
        if observation.initial_norms is None:
            growth_init_max = Reading(None, observation.no_initial)
            growth_init = missing(len(norms), observation.no_initial)
        else:
            with np.errstate(invalid="ignore"):
                growth_initial = norms / np.maximum(np.asarray(observation.initial_norms), FLOOR)
            growth_init, growth_init_max = readings(growth_initial), largest(growth_initial)
        return Measured(
            sites={"h_norm": readings(norms), "growth": (no_growth, *readings(growth)), "growth_init": growth_init},
            scalars={"h_L": Reading.of(norms[-1]), "growth_max": largest(growth), "growth_init_max": growth_init_max},
        )


def median_norms(hidden_norms: np.ndarray) -> np.ndarray:
    """Compute h_norm, the median over samples of ‖h_l‖₂: (L+1, N) → (L+1,)."""
    return np.median(hidden_norms, axis=1)


def state_norms(hidden: Sequence[Tensor]) -> tuple[float, ...]:
    """Compute h_norm from states (N, D_l), one value per site 0..L."""
    return tuple(median_norms(table(map(sample_norms, hidden))).tolist())


def largest(growth: np.ndarray) -> Reading:
    """Return the largest growth. If a value is nan, the Reading is N/A with the reason "not finite"."""
    return Reading.of(growth.max()) if len(growth) else Reading(None, "the network has no block")


PLUGIN = HiddenNorm()
