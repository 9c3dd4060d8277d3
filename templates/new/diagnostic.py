"""skeleton: the share of samples whose credit points along the gradient. Replace it with yours."""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, missing, readings
from fa_registry.metrics import Metric


class Skeleton(Diagnostic):
    card = DiagnosticCard(
        name="skeleton",
        symbol="P(Γ > 0)",
        line="share of samples whose credit has a positive cosine with the gradient",
        quantities=(
            Metric("skeleton", "P(Γ > 0)", "share of samples", kind="pct", where="site"),
        ),  # its names on pages, in forms, CSV and charts
        unit="fraction",
        range="0 to 1",
        cannot_tell="how large the cosine is",  # what readers must not conclude from it
        source="unpublished",
        needs_credit=("skeleton",),  # unavailable without the run's feedback state
        when="epoch",  # or "final", if it needs many passes
    )

    def measure(self, observation):
        """Return L+1 readings, site 0 first; a missing value is a reading with a reason, never 0."""
        cosines = observation.alignments  # (L+1, N), nan where a norm is zero or not finite
        if cosines is None:
            return Measured(sites={"skeleton": missing(observation.sites, observation.no_credits)})
        shares = [np.mean(row[np.isfinite(row)] > 0) if np.isfinite(row).any() else np.nan for row in cosines]
        return Measured(sites={"skeleton": readings(shares)})


PLUGIN = Skeleton()
