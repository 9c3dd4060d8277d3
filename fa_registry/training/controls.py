"""Controls, which a method must beat. They share the setting's initial weights and data order.

frozen: blocks keep their random initialisation; embedding, out_ln and head are trained by BP.
shallow: no blocks at all.
ladder_K: only the last K of the L blocks are trained, by any method; ladder_0 by bp is frozen, ladder_L is no control.
A frozen block is frozen completely: its BatchNorm stays in eval mode, with its initial statistics.
"""

from __future__ import annotations

import re

from torch import nn

from fa_registry.architectures.base import Network

NAMES = ("none", "frozen", "shallow")
DEPTH = re.compile(r"ladder_(0|[1-9]\d*)")  # one spelling for each K: ladder_02 would be another run than ladder_2


def depth(control: str) -> int | None:
    """Return K of ladder_K; None for any other control."""
    match = DEPTH.fullmatch(control)
    return int(match[1]) if match else None


def ladder(blocks: int) -> list[str]:
    """Return the controls with fewer trained blocks than the method: ladder_0 to ladder_{L−1}."""
    return [f"ladder_{count}" for count in range(blocks)]


def control_name(value: str) -> str:
    """Return `value` if it names a control; else raise ValueError."""
    if value not in NAMES and depth(str(value)) is None:
        raise ValueError(f"expected one of {', '.join(NAMES)}, or ladder_K to train the last K blocks, found {value!r}")
    return value


def trains_blocks(control: str) -> bool:
    """Return whether a network under this control has trained blocks (if it has any blocks)."""
    return control == "none" or bool(depth(control))


def trainable_parameters(network: Network, control: str) -> list[nn.Parameter]:
    """Return the parameters that the optimiser trains; requires_grad is switched off for all others."""
    blocks = len(network.blocks)
    kept = {"none": blocks, "frozen": 0, "shallow": 0}.get(control, depth(control))
    for block in network.blocks[: blocks - kept]:
        block.requires_grad_(False)
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def train_mode(network: Network) -> None:
    """Switch the network to train mode, except the blocks that a control freezes."""
    network.train()
    for block in network.blocks:
        block.train(learns(block))


def learns(block: nn.Module) -> bool:
    """Return whether training changes a block. A block without parameters counts as trained."""
    parameters = list(block.parameters())
    return not parameters or any(parameter.requires_grad for parameter in parameters)
