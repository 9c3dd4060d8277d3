"""‖g_l‖: how large is the reference gradient that Γ is compared with? (protocol D2)"""

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
        cannot_tell="collapse from convergence: a fitted network has a small error and so a small gradient too; see gain",
        source="arXiv 2606.21126, D2 (reference validity), there of the mean cross entropy; per sample: this project",
    )

    def measure(self, observation: Observation) -> Measured:
        """Return the median over samples of ‖g_l‖ at every site, and the same divided by REFERENCE_BATCH.

        The gradient of a sample has no factor 1/N. g_norm_mean_ce always divides by 128, the paper's N, so it is the norm of the
        mean loss's gradient there and a constant fraction of g_norm for any batch size (tests/diagnostics/test_norms.py).
        """
        norms = np.median(observation.gradient_norms, axis=1)
        return Measured(
            sites={"g_norm": readings(norms), "g_norm_mean_ce": readings(norms / REFERENCE_BATCH)},
            scalars={"g_L": Reading.of(norms[-1])},
        )


PLUGIN = GradientNorm()
