"""The epochs after which a run keeps its training state.

A kept state is a pair of files: the full state after epoch e, and network and feedback after epoch e + 1. An audit can replay the
epoch between them.
"""

from __future__ import annotations

from typing import Any

from fa_registry.jsonio import describe_value

AUTO, ALL = "auto", "all"
BY_DEFAULT = 3  # states that AUTO keeps, if they are small enough; see training.state_sizes


def asked_states(value: Any) -> str | int:
    """Parse the number of states to keep: `auto`, `all`, or a number from 0.

    Raises:
        ValueError: if `value` has another form.
    """
    if value in (AUTO, ALL):
        return value
    try:
        states = int(value) if isinstance(value, str) or type(value) is int else -1
    except ValueError:
        states = -1
    if states < 0:
        raise ValueError(f"expected auto, all or a number of states from 0, found {describe_value(value)}")
    return states


def kept_epochs(states: str | int, epochs: int) -> tuple[int, ...]:
    """Return the `states` epochs after which the training state is kept.

    They are evenly spread over 1..epochs − 1. For `all`, and for a number larger than epochs − 1, the result is 1..epochs − 1. The
    initial state is not kept, because the seed determines it. The state after the last epoch is not kept, because no epoch follows.
    """
    most = max(epochs - 1, 0)
    count = most if states == ALL else min(int(states), most)
    return tuple(index * epochs // (count + 1) for index in range(1, count + 1))
