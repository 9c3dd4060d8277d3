"""Γ as the published code reads it: the credit of block l against the gradient at the block's *input*, one site too early.

Kept for reproduction tables alone. FA's credit at the last site is g_L itself; against g_{L−1} of a residual net that is still
.997, which is how a method that is exact at one site looks aligned at another.
"""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, cosine_table, missing
from fa_registry.diagnostics.gamma import defined, no_gamma, refusal
from fa_registry.records import Reading

NAMES = ("gamma_block_input", "gamma_block_input_mean")


class GammaBlockInput(Diagnostic):
    card = DiagnosticCard(
        name="gamma_block_input",
        symbol="cos(c_l, g_{l−1})",
        line="mean over samples of cos(c_l, g_{l−1}), shown at site l; _mean: over blocks, the published headline",
        quantities=NAMES,
        unit="cosine",
        range="−1 to 1",
        cannot_tell="how well the credit fits where it acts: that is gamma. Nothing is judged by it",
        source="reference code of arXiv 2606.21126",
        needs_credit=NAMES,
    )

    def measure(self, observation: Observation) -> Measured:
        """The mean over samples of cos(c_l, g_{l−1}) at sites 1..L, N/A at site 0; and their mean over blocks.

        Needs both of one width. One site too early on purpose: tests/diagnostics/test_gamma.py checks which row is
        against which, and tests/diagnostics/test_gamma.py that `gamma` is not this.
        """
        if absent := no_gamma(observation):
            return _measured(missing(observation.sites, absent), Reading(None, absent))
        blocks = tuple(_block(observation, site) for site in range(1, observation.sites))
        row = (Reading(None, "site 0 is no block's output"), *blocks)
        return _measured(row, _mean(blocks))


def _measured(row: tuple[Reading, ...], mean: Reading) -> Measured:
    return Measured(sites={"gamma_block_input": row}, scalars={"gamma_block_input_mean": mean})


def _block(observation: Observation, site: int) -> Reading:
    credit, gradient = observation.credits[site], observation.gradients[site - 1]
    if credit.shape != gradient.shape:
        shapes = f"{credit.shape[1]} and {gradient.shape[1]} features"
        return Reading(None, f"the block changes the width of the stream: {shapes} have no cosine")
    norms = observation.credit_norms[site : site + 1], observation.gradient_norms[site - 1 : site]
    cosines = cosine_table([credit], [gradient], *norms)[0]
    reason = refusal(observation, site - 1, cosines)
    return Reading(None, reason) if reason else Reading.of(defined(cosines).mean())


def _mean(blocks: tuple[Reading, ...]) -> Reading:
    """N/A as soon as one block is: a mean over fewer would be another number."""
    if not blocks:
        return Reading(None, "the network has no block")
    absent = next((reading for reading in blocks if reading.value is None), None)
    return absent or Reading.of(np.mean([reading.value for reading in blocks]))


PLUGIN = GammaBlockInput()
