"""States with positions: vectors (N, D), tokens (N, T, D), or maps (N, D, H, W).

For a state with P positions, a method may return one vector c per sample, (N, D). This is the credit of the position
average (credit.md §2). Every position then gets c/P: the inner products of c with the average and of c/P with the whole
state are equal.
"""

from __future__ import annotations

import math

from torch import Tensor

from fa_registry.deprecated_names import aliases


def features(state: Tensor) -> int:
    """Return D, the number of features."""
    return state.shape[1] if state.dim() == 4 else state.shape[-1]


def mean_over_positions(state: Tensor) -> Tensor:
    """Return the mean over positions, (N, D)."""
    return state if state.dim() == 2 else state.mean(dim=_axes(state))


def sum_over_positions(gradient: Tensor) -> Tensor:
    """Return the gradient of the position average, (N, D): the average moves by δ if all positions do."""
    return gradient if gradient.dim() == 2 else gradient.sum(dim=_axes(gradient))


def broadcast_over_positions(credit: Tensor, state: Tensor) -> Tensor:
    """Return c/P at every position of `state`; a credit c that has positions is returned unchanged."""
    if credit.dim() == state.dim():
        return credit
    axes = _axes(state)
    for axis in axes:
        credit = credit.unsqueeze(axis)
    return (credit / math.prod(state.shape[axis] for axis in axes)).expand(state.shape)


def _axes(state: Tensor) -> tuple[int, ...]:
    return (1,) if state.dim() == 3 else (2, 3)


__getattr__ = aliases(__name__)
