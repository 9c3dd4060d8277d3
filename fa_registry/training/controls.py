"""Controls of a method: runs with fewer trained blocks, or backpropagation with local heads.

A control has the initial weights and the data order of its setting.

frozen: the blocks keep their random initial weights. Backpropagation trains the embedding, out_ln and the head.
frozen_long: the same with twice the epochs of its setting; the schedule is stretched to these epochs.
shallow: the network has no blocks.
ladder_K: the run's method trains only the last K of the L blocks. ladder_0 with the method bp is equal to frozen. ladder_L is not
a control, because it trains all blocks.
deep_supervision: backpropagation trains all blocks with the loss of the output plus the losses of the local heads.
Methods with local heads are compared with deep_supervision, which has the same heads (methods/_local_heads.py).

A frozen block does not change at all. Its BatchNorm stays in eval mode with the initial statistics.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fa_registry.records import DEEP_SUPERVISION, FROZEN_LONG

if TYPE_CHECKING:
    from torch import nn

    from fa_registry.architectures.base import Network

NAMES = ("none", "frozen", FROZEN_LONG, "shallow", DEEP_SUPERVISION)
ALL_BLOCKS = ("none", DEEP_SUPERVISION)  # train every block
DEPTH = re.compile(r"ladder_(0|[1-9]\d*)")  # one spelling per K, because ladder_02 and ladder_2 would be different runs


def depth(control: str) -> int | None:
    """Return K if the control is `ladder_K`, or None for any other control."""
    match = DEPTH.fullmatch(control)
    return int(match[1]) if match else None


def ladder(blocks: int) -> list[str]:
    """Return the names ladder_0 to ladder_{L−1} of the controls for L = `blocks`."""
    return [f"ladder_{count}" for count in range(blocks)]


def control_name(value: str) -> str:
    """Return `value` unchanged if it is the name of a control, else raise ValueError."""
    if value not in NAMES and depth(str(value)) is None:
        raise ValueError(f"expected one of {', '.join(NAMES)}, or ladder_K to train the last K blocks, found {value!r}")
    return value


def trains_blocks(control: str) -> bool:
    """Return whether a run with this control trains a block (if its network has one)."""
    return control in ALL_BLOCKS or bool(depth(control))


def trainable_parameters(network: Network, control: str) -> list[nn.Parameter]:
    """Return the parameters that this control trains; set requires_grad of frozen blocks to False."""
    blocks = len(network.blocks)
    trained_count = blocks if control in ALL_BLOCKS else depth(control) or 0
    for block in network.blocks[: blocks - trained_count]:
        block.requires_grad_(False)
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def train_mode(network: Network) -> None:
    """Switch the network, except its frozen blocks, to train mode."""
    network.train()
    for block in network.blocks:
        block.train(learns(block))


def learns(block: nn.Module) -> bool:
    """Return whether training changes this block. A block without parameters counts as trained."""
    parameters = list(block.parameters())
    return not parameters or any(parameter.requires_grad for parameter in parameters)
