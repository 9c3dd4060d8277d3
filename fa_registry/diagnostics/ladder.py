"""Diagnostic ladder: number of blocks whose weights have changed in training.

The number shows how many blocks a control run trained. It is computed from the weights, and not read from the run's declaration.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fa_registry.diagnostics._probe import absence
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation
from fa_registry.records import Reading

# An audit compares the weights with initial weights that it re-initialises from the seed. If audit and run have different
# configurations, such as torch versions, these initial weights differ by at most 4.8e-7 of the largest entry
# (docs/measured/configurations.json).
ROUNDING = 5e-6


class Ladder(Diagnostic):
    card = DiagnosticCard(
        name="ladder",
        symbol="k",
        line="number of blocks with a weight that differs from its initial value by more than rounding",
        quantities=("blocks_trained",),
        unit="blocks",
        range="0 to L; 0 for the control frozen, K for the control ladder_K, otherwise L",
        cannot_tell="how much the blocks learned (see feature_drift); whether this helps (compare the main metrics of the controls "
        "ladder_0..ladder_L)",
        source="arXiv 2606.21126, ladder control; counting changed blocks from the weights: this project",
        when="final",
    )

    def measure(self, observation: Observation) -> Measured:
        """Count the blocks with a weight that has changed by more than rounding."""
        if reason := absence(observation, "weights", "initial_weights"):
            return Measured(scalars={"blocks_trained": Reading(None, reason)})
        bench = observation.bench
        is_trained = [
            _has_moved(bench.weights, bench.initial_weights, f"blocks.{block}.")
            for block in range(observation.sites - 1)
        ]
        return Measured(scalars={"blocks_trained": Reading(float(sum(is_trained)))})


def _has_moved(weights: Mapping[str, Tensor], initial: Mapping[str, Tensor], block: str) -> bool:
    """Return whether a weight whose name begins with `block` has changed by more than ROUNDING."""
    return any(
        name not in initial or not _is_near(weight, initial[name].to(weight.device))
        for name, weight in weights.items()
        if name.startswith(block)
    )


def _is_near(weight: Tensor, initial: Tensor) -> bool:
    """Return whether no entry has changed by more than ROUNDING × the largest initial entry."""
    return torch.equal(weight, initial) or bool((weight - initial).abs().max() <= ROUNDING * initial.abs().max())


PLUGIN = Ladder()
