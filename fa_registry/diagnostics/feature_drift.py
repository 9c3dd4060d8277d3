"""Diagnostic feature_drift: distance of the weights from their initial values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fa_registry.diagnostics._probe import Unavailable, absence
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation
from fa_registry.metrics import FAMILY
from fa_registry.records import Reading

PREFIX = "feature_drift"
OF_BLOCKS = "feature_drift_blocks"


class FeatureDrift(Diagnostic):
    card = DiagnosticCard(
        name="feature_drift",
        symbol="‖W_T − W_0‖/‖W_0‖",
        line="relative distance of every parameter from its initial value, Frobenius norms in float64; _blocks: all block "
        "parameters as one vector",
        quantities=(f"{PREFIX}{FAMILY}", OF_BLOCKS),
        unit="ratio",
        range="0 to infinity",
        cannot_tell="whether the features improved: weights also drift if they grow in a useless direction",
        source="arXiv 2606.21126; as a measure of lazy training: Chizat, Oyallon & Bach 2019",
        when="final",
        bibtex="""@inproceedings{chizat2019lazy,
  title={On Lazy Training in Differentiable Programming},
  author={Chizat, L{\\'e}na{\\"i}c and Oyallon, Edouard and Bach, Francis},
  booktitle={Advances in Neural Information Processing Systems}, volume={32}, year={2019}
}""",
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute ‖W_T − W_0‖_F/‖W_0‖_F of every parameter and of all block parameters.

        The metrics are N/A if the weights or the initial weights are unavailable.
        """
        if reason := absence(observation, "weights"):
            return Measured(scalars={OF_BLOCKS: Reading(None, reason)})
        weights, initial = observation.bench.weights, observation.bench.initial_weights
        if isinstance(initial, Unavailable):
            names = (*(f"{PREFIX}/{name}" for name in weights), OF_BLOCKS)
            return Measured(scalars=dict.fromkeys(names, Reading(None, initial.reason)))
        scalars = {f"{PREFIX}/{name}": drift(weights, initial, [name]) for name in weights}
        blocks = [name for name in weights if name.startswith("blocks.")]
        none = Reading(None, "the network has no block with parameters")
        return Measured(scalars={**scalars, OF_BLOCKS: drift(weights, initial, blocks) if blocks else none})


def drift(weights: Mapping[str, Tensor], initial: Mapping[str, Tensor], names: Iterable[str]) -> Reading:
    """Compute ‖W − W_0‖/‖W_0‖ in float64, where W is all parameters in `names` as one vector."""
    changes, initial_parts = [], []
    for name in names:
        initial_weight = initial.get(name)
        if initial_weight is None or initial_weight.shape != weights[name].shape:
            return Reading(None, f"the initial weights contain no {name} of shape {tuple(weights[name].shape)}")
        initial_weight = initial_weight.to(weights[name].device, torch.float64)
        changes.append((weights[name].double() - initial_weight).flatten())
        initial_parts.append(initial_weight.flatten())
    distance, norm = (torch.linalg.vector_norm(torch.cat(parts)).item() for parts in (changes, initial_parts))
    return Reading.of(distance / norm) if norm else Reading(None, "the initial weights are exactly zero")


PLUGIN = FeatureDrift()
