"""Diagnostic g_norm: norm ‖g_l‖ of the reference gradient of Γ (protocol D2)."""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import REFERENCE_BATCH, Diagnostic, DiagnosticCard, Measured, Observation, readings
from fa_registry.records import Reading


class GradientNorm(Diagnostic):
    card = DiagnosticCard(
        name="g_norm",
        symbol="‖g_l‖",
        line="median over samples of the L2 norm of the sample's gradient; g_norm_mean_ce is the paper's metric, g_norm/128",
        quantities=("g_norm", "g_norm_mean_ce", "g_L"),
        unit="loss per unit of state",
        range="0 to infinity",
        cannot_tell="whether a small gradient means collapse or convergence: a network that fits its data also has a small "
        "gradient; the metric gain distinguishes the two cases",
        source="arXiv 2606.21126, D2 (reference validity), for the mean cross entropy; per sample: this project",
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the median over samples of ‖g_l‖ at every site.

        A second metric, g_norm_mean_ce, is g_norm divided by REFERENCE_BATCH = 128, the batch size N of the paper. The paper uses
        the gradient of the mean loss, which contains the factor 1/N, so g_norm_mean_ce is the paper's metric for N = 128. Neither
        metric depends on the batch size (tests/diagnostics/test_norms.py). The scalar metric g_L is g_norm at site L.
        """
        norms = np.median(observation.gradient_norms, axis=1)
        return Measured(
            sites={"g_norm": readings(norms), "g_norm_mean_ce": readings(norms / REFERENCE_BATCH)},
            scalars={"g_L": Reading.of(norms[-1])},
        )


PLUGIN = GradientNorm()
