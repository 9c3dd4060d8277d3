"""costate_cosine: the cosine between credit and costate, for networks whose costate has a closed form."""

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
from fa_registry.records import NOT_FINITE, Reading


class CostateCosine(Diagnostic):
    card = DiagnosticCard(
        name="costate_cosine",
        symbol="cos(c_l, λ_l)",
        line="mean over samples of the cosine between c_l and the exact costate of the network, unclamped, whole states; "
        "_mean: over the sites whose credit is not exact by construction",
        quantities=("costate_cosine", "costate_cosine_mean"),
        unit="cosine",
        range="−1 to 1",
        cannot_tell="anything about networks whose costate has no closed form: the toy linear-quadratic task is not a deep network",
        source="arXiv 2606.21126, toy linear-quadratic task",
        needs_credit=("costate_cosine", "costate_cosine_mean"),
    )

    def measure(self, observation: Observation) -> Measured:
        """Return the mean over samples of cos(c_l, λ_l) at every site, with λ_l of the summed loss.

        It is N/A if no closed form is known. Rows are whole states, (N, …), without averages over tokens or pixels. λ_l is the
        gradient, not its negative (tests/architectures/test_base.py), so +1 is a perfect credit.
        """
        if absent := absence(observation, "costates", "credits"):
            return _measured(missing(observation.sites, absent), Reading(None, absent))
        pairs = zip(observation.bench.credits, observation.bench.costates(), strict=True)
        rows = tuple(_reading(*pair) for pair in pairs)
        exact = observation.exact or (False,) * len(rows)
        return _measured(rows, _mean([row for row, known in zip(rows, exact, strict=True) if not known]))


def _measured(rows: SiteReadings, mean: Reading) -> Measured:
    return Measured(sites={"costate_cosine": rows}, scalars={"costate_cosine_mean": mean})


def _mean(rows: Sequence[Reading]) -> Reading:
    """Return the mean of one reading per site; N/A, with the first reason, if one has no value."""
    if not rows:
        return Reading(None, "the credit of every site is exact by construction")
    absent = [row for row in rows if row.value is None]
    return absent[0] if absent else Reading.of(sum(row.value for row in rows) / len(rows))


def _reading(credit: Tensor, costate: Tensor) -> Reading:
    cosines = sample_cosines(flat(credit), flat(costate))
    known = cosines[~cosines.isnan()]
    if len(known):
        return Reading.of(known.mean())
    if not (credit.isfinite().all() and costate.isfinite().all()):
        return Reading(None, f"{NOT_FINITE}: credit or costate, for every sample")
    return Reading(None, "credit or costate is exactly zero for every sample")


PLUGIN = CostateCosine()
