"""Methods and networks that get the positions of tokens and maps wrong. Each must be caught by the property its test names."""

from __future__ import annotations

from fa_registry.architectures.base import Architecture
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.methods.fa import BlockFeedbackAlignment
from fa_registry.token_axes import broadcast_over_positions, features


class ForgetsPositions(DirectFeedbackAlignment):
    """Writes c itself, not c/P, to all positions: P times the credit of the average."""

    def credits(self, feedback, inputs):
        own = super().credits(feedback, inputs)
        return [
            (broadcast_over_positions(c, h) * (h[0].numel() / c[0].numel())).clone()
            for c, h in zip(own, inputs.hidden, strict=True)
        ]


class PositionsForgottenBelow(BlockFeedbackAlignment):
    """Continues from the mean of c_L over positions where it should from their sum."""

    def credits(self, feedback, inputs):
        *below, top = super().credits(feedback, inputs)
        return [*(credit * features(top) / top[0].numel() for credit in below), top]


class Misspread(Architecture):
    """An architecture whose network spreads a row of credit with the given function."""

    def __init__(self, honest, spread):
        self.honest, self.card, self.spread = honest, honest.card, spread

    def build(self, options, image_shape, classes, generator):
        network = self.honest.build(options, image_shape, classes, generator)
        network.spread = self.spread
        return network


def without_the_share(credit, state):
    """c at every position instead of c/P."""
    return (
        credit
        if credit.dim() == state.dim()
        else broadcast_over_positions(credit, state) * (state[0].numel() / credit[0].numel())
    )


def along_the_wrong_axis(credit, state):
    """Maps (N, D, H, W) filled as if features came last: as many numbers, at the wrong places."""
    return (
        credit
        if credit.dim() == state.dim()
        else broadcast_over_positions(credit, state.flatten(2).mT).reshape(state.shape)
    )
