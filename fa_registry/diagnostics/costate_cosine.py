"""Diagnostic costate_cosine: cosine between the credit c_l and the exact costate λ_l.

The costate is the gradient of the loss with respect to the state, in closed form. The metric exists only for networks whose costate
has a closed form.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fa_registry.diagnostics._probe import absence, flat
from fa_registry.diagnostics.base import (
    Diagnostic,
    DiagnosticCard,
    Measured,
    Observation,
    SiteReadings,
    missing,
    sample_cosines,
)
from fa_registry.records import Reading, not_finite


class CostateCosine(Diagnostic):
    card = DiagnosticCard(
        name="costate_cosine",
        symbol="cos(c_l, λ_l)",
        line="mean over samples of the cosine between c_l and the exact costate of the network, without clamping, over complete "
        "states; _mean: mean over the sites whose credit is not exact by construction",
        quantities=("costate_cosine", "costate_cosine_mean"),
        unit="cosine",
        range="−1 to 1",
        cannot_tell="anything about networks whose costate has no closed form: the linear-quadratic toy task is not a deep network",
        source="arXiv 2606.21126, toy linear-quadratic task",
        needs_credit=("costate_cosine", "costate_cosine_mean"),
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the mean over samples of cos(c_l, λ_l) at every site.

        λ_l is the exact costate for the summed loss. The metric is N/A if the costate has no known closed form. Credit and costate
        have the shape of the complete state (N, …) and are not averaged over tokens or pixels. λ_l has the sign of the gradient,
        so +1 means a perfect credit (tests/architectures/test_base.py).
        """
        if reason := absence(observation, "costates", "credits"):
            return _measured(missing(observation.sites, reason), Reading(None, reason))
        pairs = zip(observation.bench.credits, observation.bench.costates(), strict=True)
        rows = tuple(_reading(*pair) for pair in pairs)
        exact = observation.exact or (False,) * len(rows)
        return _measured(rows, _mean([row for row, is_exact in zip(rows, exact, strict=True) if not is_exact]))


def _measured(rows: SiteReadings, mean: Reading) -> Measured:
    return Measured(sites={"costate_cosine": rows}, scalars={"costate_cosine_mean": mean})


def _mean(rows: Sequence[Reading]) -> Reading:
    """Return the mean of the readings. If a reading has no value, return the first such reading."""
    if not rows:
        return Reading(None, "the credit of every site is exact by construction")
    absent = [row for row in rows if row.value is None]
    return absent[0] if absent else Reading.of(sum(row.value for row in rows) / len(rows))


def _reading(credit: Tensor, costate: Tensor) -> Reading:
    cosines = sample_cosines(flat(credit), flat(costate))
    defined_cosines = cosines[~cosines.isnan()]
    if len(defined_cosines):
        return Reading.of(defined_cosines.mean())
    if not (credit.isfinite().all() and costate.isfinite().all()):
        return Reading(None, not_finite("credit or costate of every sample"))
    return Reading(None, "for every sample, the credit or the costate is exactly zero")


PLUGIN = CostateCosine()
