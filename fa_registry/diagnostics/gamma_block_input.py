"""Γ as the published code computes it: with the gradient at the block's *input*, one site too early.

It is used only for reproduction tables. FA's credit at the last site is g_L itself, and its cosine with g_{L−1} of a residual net
is still .997. So a method that is exact at one site appears aligned at another.
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
        line="mean over samples of cos(c_l, g_{l−1}), shown at site l; _mean: over blocks, the published main value",
        quantities=NAMES,
        unit="cosine",
        range="−1 to 1",
        cannot_tell="how well the credit fits where it acts: gamma measures that. No rule uses this metric",
        source="reference code of arXiv 2606.21126",
        needs_credit=NAMES,
    )

    def measure(self, observation: Observation) -> Measured:
        """Return the mean over samples of cos(c_l, g_{l−1}) at sites 1..L, and the mean over blocks.

        It is N/A at site 0. Both vectors must have the same width. The reference is one site too early on purpose:
        tests/diagnostics/test_gamma.py checks which rows are compared, and that `gamma` differs from this.
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
    """Return the mean over blocks; N/A if one block is N/A, because a mean over fewer blocks would differ."""
    if not blocks:
        return Reading(None, "the network has no block")
    absent = next((reading for reading in blocks if reading.value is None), None)
    return absent or Reading.of(np.mean([reading.value for reading in blocks]))


PLUGIN = GammaBlockInput()
