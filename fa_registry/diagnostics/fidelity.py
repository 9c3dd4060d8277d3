"""Diagnostic fidelity: is a small reference gradient exact, or numerical noise?"""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import LEAST_ERROR, Diagnostic, DiagnosticCard, Measured, Observation, missing
from fa_registry.metrics import FIDELITY, SMALL_REFERENCE
from fa_registry.records import Reading
from fa_registry.records.runs import EVERY

NO_DIRECTION = "the gradient is zero or not finite for every sample"
ALL_FITTED = "the output error of every sample is below the resolution of float32"


class Fidelity(Diagnostic):
    card = DiagnosticCard(
        name="fidelity",
        symbol="cos(g₃₂, g₆₄)",
        line=f"cosine between g_l in float32 and g_l in float64, mean over the samples with ‖e‖ > {LEAST_ERROR:.2g}; "
        "suffix _left_out: number of samples that this mean excludes; suffix _batch: one cosine over all samples of the batch",
        quantities=FIDELITY,
        unit="cosine; _left_out: samples",
        range="−1 to 1; 1 is exact",
        cannot_tell="errors that occur both in float32 and in float64",
        source="this project; question: is a small gradient also an inaccurate gradient?",
        conventions={"fidelity_least_error": LEAST_ERROR, "fidelity_every": EVERY, "fidelity_below": SMALL_REFERENCE},
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the cosine between g_l in float32 and g_l in float64.

        The metrics per site are the mean over samples, and the cosine of all samples as one vector. A gradient of norm 1e-12 has
        fidelity 1 if it is accurate to seven digits (tests/diagnostics/test_fidelity.py). If the output error of a sample is below
        the resolution of float32, the gradient of this sample has no defined direction in float32. Such samples are excluded from
        the mean. The scalar metrics are the smallest of the means and the number of excluded samples.
        """
        if observation.fidelities is None:
            absent = missing(observation.sites, observation.no_double)
            return Measured(dict.fromkeys(FIDELITY[:2], absent), dict.fromkeys(FIDELITY[2:], absent[0]))
        mean_readings = tuple(fidelity_reading(observation, site) for site in range(observation.sites))
        defined_values = [reading.value for reading in mean_readings if reading.value is not None]
        lowest = Reading(min(defined_values)) if defined_values else Reading(None, mean_readings[0].reason)
        left_out = Reading.of(observation.samples - observation.resolved.sum())
        sites = {"fidelity": mean_readings, "fidelity_batch": _batch(observation)}
        return Measured(sites, {"fidelity_min": lowest, "fidelity_left_out": left_out})


def fidelity_reading(observation: Observation, site: int) -> Reading:
    """Compute the mean fidelity at one site.

    The mean excludes samples whose gradient is zero or not finite, and samples whose output error is below the resolution of
    float32.
    """
    values = observation.fidelities[site]
    if np.isnan(values).all():
        return Reading(None, NO_DIRECTION)
    counted_values = values[~np.isnan(values) & observation.resolved]
    if len(counted_values) == 0:
        return Reading(None, ALL_FITTED if not observation.resolved.any() else NO_DIRECTION)
    return Reading.of(counted_values.mean())


def _batch(observation: Observation) -> tuple[Reading, ...]:
    """Compute the cosine of all samples as one vector, at every site, from cosines and norms."""
    single, double = observation.gradient_norms, observation.double_norms
    with np.errstate(all="ignore"):  # inf · 0 is nan, which is recorded as not finite
        sizes = single * double
        products = np.where(sizes == 0, 0.0, observation.fidelities * sizes).sum(axis=1)
        cosines = products / np.sqrt((single**2).sum(axis=1) * (double**2).sum(axis=1))
    return tuple(
        Reading.of(cosine) if rows.any() else Reading(None, NO_DIRECTION)
        for cosine, rows in zip(cosines, sizes, strict=True)
    )


PLUGIN = Fidelity()
