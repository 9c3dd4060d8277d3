"""Means, sums and broadcasts over the positions of a state.

A state has one of three shapes: (N, D) for vectors, which have no positions, (N, T, D) for tokens, and (N, D, H, W)
for maps. For a state with P positions, a method may return one credit vector c per sample, (N, D). This vector is the credit of the
mean over positions (credit.md §2). Every position then receives c/P. Therefore the inner product of c with the mean equals the
inner product of c/P with the complete state.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def features(state: Tensor) -> int:
    """Return the number of features, D."""
    return state.shape[1] if state.dim() == 4 else state.shape[-1]


def mean_over_positions(state: Tensor) -> Tensor:
    """Return the mean of a state over its positions, (N, D)."""
    return state if state.dim() == 2 else state.mean(dim=_axes(state))


def sum_over_positions(gradient: Tensor) -> Tensor:
    """Return the sum of a state's gradient over its positions, (N, D).

    The sum is the gradient of the mean over positions, because the mean moves by δ if every position moves by δ.
    """
    return gradient if gradient.dim() == 2 else gradient.sum(dim=_axes(gradient))


def broadcast_over_positions(credit: Tensor, state: Tensor) -> Tensor:
    """Return c/P at each of the P positions of `state`, or c itself if c already has positions."""
    if credit.dim() == state.dim():
        return credit
    axes = _axes(state)
    for axis in axes:
        credit = credit.unsqueeze(axis)
    return (credit / math.prod(state.shape[axis] for axis in axes)).expand(state.shape)


def state_vectors(state: Tensor) -> Tensor:
    """Reduce a state to one vector per sample, (N, D).

    The vector is the state itself for (N, D), the class token for (N, T, D), and the mean over positions for maps (N, C, H, W).
    """
    if state.dim() == 2:
        return state
    return state[:, 0] if state.dim() == 3 else state.mean(dim=(2, 3))


def gradient_vectors(gradient: Tensor) -> Tensor:
    """Reduce the gradient of a state to the gradient of its `state_vectors`, (N, D).

    The vector is the gradient of the class token for (N, T, D), and the sum over positions for maps (N, C, H, W). The mean of a
    map moves by δ when every position moves by δ, so the gradient of the mean is the sum over positions.
    tests/diagnostics/test_observe.py compares this sum with e W for a head that reads the mean of the map.
    """
    if gradient.dim() == 2:
        return gradient
    return gradient[:, 0] if gradient.dim() == 3 else gradient.sum(dim=(2, 3))


def _axes(state: Tensor) -> tuple[int, ...]:
    return (1,) if state.dim() == 3 else (2, 3)
