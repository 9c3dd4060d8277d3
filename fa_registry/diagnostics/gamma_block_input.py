"""Diagnostic gamma_block_input: Γ with the gradient at the block's input.

This metric is the Γ of the published code, which compares the credit at site l with the gradient at site l−1. The metric is used
only in reproduction tables. A method whose credit is exact at one site can appear to be aligned with the gradient at another site.
For example, FA's credit at the last site is g_L, and in a residual network the cosine between g_L and g_{L−1} is .997.
"""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, cosine_table, missing
from fa_registry.diagnostics.gamma import defined, no_gamma, refusal
from fa_registry.records import Reading

NAMES = ("gamma_block_input", "gamma_block_input_mean", "gamma_deep_input")
FIRST_DEEP = 2  # the published deep cosine leaves out block 1


class GammaBlockInput(Diagnostic):
    card = DiagnosticCard(
        name="gamma_block_input",
        symbol="cos(c_l, g_{l−1})",
        line="mean over samples of cos(c_l, g_{l−1}), shown at site l; _mean: mean over blocks, the main metric of the paper; "
        "gamma_deep_input: mean over blocks 2..L, the deep cosine of the published penalty sweep",
        quantities=NAMES,
        unit="cosine",
        range="−1 to 1",
        cannot_tell="the alignment at the site where the credit is used, which is the metric gamma; no rule uses gamma_block_input",
        source="reference code of arXiv 2606.21126",
        needs_credit=NAMES,
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute the mean over samples of cos(c_l, g_{l−1}) at sites 1..L.

        The scalar metrics are the mean over all blocks, and the mean over blocks 2..L. The metric per site is N/A at site 0, and
        at sites where c_l and g_{l−1} have different widths.

        The index l−1 is not an error: the published code uses it. tests/diagnostics/test_gamma.py checks which
        sites are compared, and that the values differ from those of `gamma`.
        """
        if reason := no_gamma(observation):
            absent = Reading(None, reason)
            return _measured(missing(observation.sites, reason), absent, absent)
        blocks = tuple(_block(observation, site) for site in range(1, observation.sites))
        row = (Reading(None, "site 0 is not the output of a block"), *blocks)
        return _measured(row, _mean(blocks), deep_input(observation))


def deep_input(observation: Observation) -> Reading:
    """Compute the mean over blocks 2..L of Γ with the gradient at the block's input.

    The observation must have credits whose Γ has a meaning. This is the deep cosine of the published penalty sweep.
    """
    blocks = tuple(_block(observation, site) for site in range(FIRST_DEEP, observation.sites))
    return _mean(blocks) if blocks else Reading(None, "the network has no block after the first")


def _measured(row: tuple[Reading, ...], mean: Reading, deep: Reading) -> Measured:
    return Measured(
        sites={"gamma_block_input": row}, scalars={"gamma_block_input_mean": mean, "gamma_deep_input": deep}
    )


def _block(observation: Observation, site: int) -> Reading:
    credit, gradient = observation.credits[site], observation.gradients[site - 1]
    if credit.shape != gradient.shape:
        shapes = f"{credit.shape[1]} and {gradient.shape[1]} features"
        return Reading(
            None,
            "the block changes the width of the state, so the cosine of the credit and the gradient before the block is not "
            f"defined ({shapes})",
        )
    norms = observation.credit_norms[site : site + 1], observation.gradient_norms[site - 1 : site]
    cosines = cosine_table([credit], [gradient], *norms)[0]
    reason = refusal(observation, site - 1, cosines)
    return Reading(None, reason) if reason else Reading.of(defined(cosines).mean())


def _mean(blocks: tuple[Reading, ...]) -> Reading:
    """Return the mean over all blocks, or the first reading without a value.

    A mean over some of the blocks would be a different metric.
    """
    if not blocks:
        return Reading(None, "the network has no block")
    absent = next((reading for reading in blocks if reading.value is None), None)
    return absent or Reading.of(np.mean([reading.value for reading in blocks]))


PLUGIN = GammaBlockInput()
