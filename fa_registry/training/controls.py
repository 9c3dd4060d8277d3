"""Controls: what a method must beat. They share the setting's initial weights and data order.

frozen: blocks stay at their random initialisation, embedding, out_ln and head are trained by BP.
shallow: no blocks at all.
ladder_K: of the L blocks only the last K are trained, by any method; ladder_0 by bp is frozen, ladder_L is no control at all.
A block that is kept is kept whole: its BatchNorm stays in eval mode, at the statistics it was built with.
"""

from __future__ import annotations

import re

from torch import nn

from fa_registry.architectures.base import Network

NAMES = ("none", "frozen", "shallow")
DEPTH = re.compile(r"ladder_(0|[1-9]\d*)")  # one spelling a rung: ladder_02 would be another run than ladder_2


def depth(control: str) -> int | None:
    """K of ladder_K; None for any other control."""
    match = DEPTH.fullmatch(control)
    return int(match[1]) if match else None


def ladder(blocks: int) -> list[str]:
    """The rungs below the method itself: ladder_0 to ladder_{L−1}."""
    return [f"ladder_{count}" for count in range(blocks)]


def control_name(value: str) -> str:
    """`value` if it names a control; ValueError otherwise."""
    if value not in NAMES and depth(str(value)) is None:
        raise ValueError(f"expected one of {', '.join(NAMES)}, or ladder_K to train the last K blocks, found {value!r}")
    return value


def trains_blocks(control: str) -> bool:
    """Whether a network under this control has a block that learns (if it has any)."""
    return control == "none" or bool(depth(control))


def trainable_parameters(network: Network, control: str) -> list[nn.Parameter]:
    """The parameters the optimiser owns; everything else has requires_grad switched off here."""
    blocks = len(network.blocks)
    kept = {"none": blocks, "frozen": 0, "shallow": 0}.get(control, depth(control))
    for block in network.blocks[: blocks - kept]:
        block.requires_grad_(False)
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def train_mode(network: Network) -> None:
    """Switch to training, all but the blocks that a control keeps."""
    network.train()
    for block in network.blocks:
        block.train(learns(block))


def learns(block: nn.Module) -> bool:
    """Whether a block is one that training changes. One without parameters has nothing to keep: it counts as learning."""
    parameters = list(block.parameters())
    return not parameters or any(parameter.requires_grad for parameter in parameters)
