"""States with positions: one vector of features a sample (N, D), tokens (N, T, D), or maps (N, D, H, W).

A method may answer with one vector a sample, (N, D), where a state has P positions. It then speaks of the position average
(credit.md §2), and is spread as c/P: the inner product with the state's average and the one with the whole state are the same.
"""

from __future__ import annotations

import math

from torch import Tensor


def features(state: Tensor) -> int:
    """D."""
    return state.shape[1] if state.dim() == 4 else state.shape[-1]


def mean_over_positions(state: Tensor) -> Tensor:
    """The mean over positions, (N, D)."""
    return state if state.dim() == 2 else state.mean(dim=_axes(state))


def sum_over_positions(gradient: Tensor) -> Tensor:
    """The gradient of the position average, (N, D): the average moves by δ when every position does."""
    return gradient if gradient.dim() == 2 else gradient.sum(dim=_axes(gradient))


def broadcast_over_positions(credit: Tensor, state: Tensor) -> Tensor:
    """c/P at every position of `state`, for a credit (N, D); one that has positions already is returned as it is."""
    if credit.dim() == state.dim():
        return credit
    axes = _axes(state)
    for axis in axes:
        credit = credit.unsqueeze(axis)
    return (credit / math.prod(state.shape[axis] for axis in axes)).expand(state.shape)


def _axes(state: Tensor) -> tuple[int, ...]:
    return (1,) if state.dim() == 3 else (2, 3)
