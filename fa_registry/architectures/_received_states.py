"""Declared states of a third-party model, compared with the tensors that its modules receive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fa_registry.architectures._adapter import _Flow

ROUNDINGS = 16


def declared_states(flow: _Flow, sites: Sequence[str], skip: str) -> list[Tensor]:
    """Compute h_0..h_L from recorded inputs and outputs; `skip` is as for `adapt`."""
    pairs = [(flow.inputs[name], flow.outputs[name]) for name in sites]
    if skip != "outside":
        return [pairs[0][0], *(output for _, output in pairs)]
    # a branch of another shape cannot be added to the stream: such a state never matches
    added = (
        state + output if state.shape == output.shape else torch.full_like(output, torch.nan) for state, output in pairs
    )
    return [pairs[0][0], *added]


def first_misfit(flow: _Flow, sites: Sequence[str], states: Sequence[Tensor]) -> tuple[str, int] | None:
    """Return (module, l) for the first module whose input is not the state h_l, or None."""
    for site, name in enumerate(sites[1:], start=1):
        if not is_same(flow.inputs[name], states[site]):
            return name, site
    comparable = flow.readout is not None and (
        flow.readout.shape == states[-1].shape or len(sites) == 1  # with one site only the readout can show a misfit
    )
    return (flow.readout_name, len(sites)) if comparable and not is_seen_as(flow.readout, states[-1]) else None


def is_seen_at_readout(flow: _Flow, state: Tensor) -> bool:
    """Return whether the shape of the readout's input allows a comparison with a state."""
    return flow.readout is not None and any(flow.readout.shape == view.shape for view in views(state))


def is_seen_as(received: Tensor, state: Tensor) -> bool:
    """Return whether a module received a state, or what a readout usually reads of it."""
    return any(is_same(received, view) for view in views(state))


def views(state: Tensor) -> Iterator[Tensor]:
    """Yield a state and the tensors that a readout usually reads: class token, mean, flat vector."""
    yield state
    if state.dim() == 3:
        yield from (state[:, 0], state.mean(dim=1))
    if state.dim() == 4:
        pooled = state.mean(dim=(2, 3), keepdim=True)
        yield from (pooled, pooled.flatten(1))
    if state.dim() > 2:
        yield state.flatten(1)


def is_same(received: Tensor, declared: Tensor) -> bool:
    """Return whether two tensors are equal within ROUNDINGS rounding errors."""
    if received.shape != declared.shape:
        return False
    tolerance = ROUNDINGS * torch.finfo(declared.dtype).eps
    largest = torch.nan_to_num(declared, 0.0, 0.0, 0.0).abs().max().item()
    return torch.allclose(
        declared, received.to(declared.dtype), rtol=tolerance, atol=tolerance * largest, equal_nan=True
    )
