"""Controls: what a method must beat. They share the setting's initial weights and data order.

frozen: blocks stay at their random initialisation, embedding, out_ln and head are trained by BP.
shallow: no blocks at all.
"""

from __future__ import annotations

from torch import nn

from fa_registry.architectures.base import Network

NAMES = ("none", "frozen", "shallow")


def trainable_parameters(network: Network, control: str) -> list[nn.Parameter]:
    """The parameters the optimiser owns; everything else has requires_grad switched off here."""
    if control == "frozen":
        for parameter in network.blocks.parameters():
            parameter.requires_grad_(False)
    return [parameter for parameter in network.parameters() if parameter.requires_grad]
