"""Check the reference gradient of a network that is not built in, and withdraw what rests on one that is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network
from fa_registry.diagnostics import Look, Observation, ReferenceCheck, evaluating
from fa_registry.diagnostics._forward_gradient import shifted_losses
from fa_registry.diagnostics._reference_check import check_reference
from fa_registry.errors import UsageError
from fa_registry.quantities import NOT_ITS_GRADIENT
from fa_registry.records import Measurements, Reading
from fa_registry.terminal_loss import sample_losses

REFERENCE_CHECK = "reference_check"
WIDTHS = "g_norm_uncertainty"
EVERY = 10  # epochs between two checks of a loop's model
SAMPLES = 16  # of the eval batch
NOT_CHECKED = f"checked at epochs 0, {EVERY}, {2 * EVERY}, … and at the end"


class ShiftedNetwork(nn.Module):
    """A Network whose states can be shifted; its forward pass is the one that Network declares."""

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, return_hidden: bool, shifts: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits and states; shifts: L+1 tensors of the states' shapes. return_hidden: as Adapted has it, always true."""
        network = self.network
        states = [network.embed(x) + shifts[0]]
        for block, shift in zip(network.blocks, shifts[1:], strict=True):
            states.append(network.step(states[-1], block(states[-1])) + shift)
        return network.readout(states[-1]), states


def check_of(
    network: nn.Module, x: Tensor, y: Tensor, seen: Look, credits: Sequence[Tensor] | None
) -> ReferenceCheck | None:
    """Compare the gradients of a look with differences of the loss; None where they are such differences themselves.

    In float64 where the network's forward pass runs in it, else in the precision of the look. On SAMPLES of the batch, and on the
    whole batch if these object: the samples of some networks depend on each other.

    Args:
        network: a Network, or Adapted.
        x: (N, …).
        y: (N,).
        seen: what the batch showed.
        credits: one vector (N, D_l) a sample and site.
    """
    if seen.widths:
        return None
    if len(x) > SAMPLES:
        few = None if credits is None else [rows[:SAMPLES] for rows in credits]
        found = _checked(network, x[:SAMPLES], y[:SAMPLES], seen, few)
        if not found.objection:
            return found
    return _checked(network, x, y, seen, credits)


def _checked(network: nn.Module, x: Tensor, y: Tensor, seen: Look, credits: Sequence[Tensor] | None) -> ReferenceCheck:
    """Check on the first samples of the look, as many as x has."""
    shifted = ShiftedNetwork(network) if isinstance(network, Network) else network
    with evaluating(shifted):
        for found in (seen.double, seen.single):
            if found is None:
                continue
            states, gradients = ([rows[: len(x)] for rows in part] for part in (found.hidden, found.gradients))
            precision = states[0].dtype
            losses = shifted_losses(shifted, x, y, precision)
            try:
                plain = losses([torch.zeros_like(state) for state in states])
            except Exception as error:  # a forward pass that runs in one precision alone
                reason = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            if isinstance(network, Network) and (objection := _other_pass(plain, found.logits[: len(x)], y)):
                return ReferenceCheck(tuple(Reading(None, objection) for _ in states), objection)
            return check_reference(losses, states, gradients, credits, precision)
    raise UsageError(f"the reference gradient: expected a forward pass that runs with shifted states, found {reason}")


def _other_pass(losses: Tensor, logits: Tensor, y: Tensor) -> str:
    """Return why a Network cannot be checked: it does not compute what its parts compute."""
    if torch.allclose(losses, sample_losses(logits.double(), y), rtol=1e-4, atol=1e-4):
        return ""
    return (
        f"{NOT_ITS_GRADIENT}, as far as can be checked: the network's answer is not that of embed, blocks, step and readout "
        "in this order"
    )


def unreferenced(observation: Observation) -> Observation:
    """Return the observation with no gradient that a value could be made of."""
    blank = [torch.full_like(gradient, torch.nan) for gradient in observation.gradients]
    return replace(observation, gradients=blank, gradients_double=None)


def without_reference(found: Measurements, blind: Measurements, reason: str) -> Measurements:
    """Return the measurements without the values that were made of the reference gradient.

    Args:
        found: with the reference gradient.
        blind: the same without one: what differs there rests on it.
        reason: why the reference is none.
    """

    def kept(reading: Reading, other: Reading | None) -> Reading:
        rests = reading.value is not None and (other is None or other.value != reading.value)
        return Reading(None, reason) if rests else reading

    sites = {
        name: row
        if name == REFERENCE_CHECK
        else tuple(kept(*pair) for pair in zip(row, _row(blind.sites, name, len(row)), strict=True))
        for name, row in found.sites.items()
    }
    scalars = {name: kept(reading, blind.scalars.get(name)) for name, reading in found.scalars.items()}
    return Measurements(sites, scalars, found.conventions, found.failures)


def _row(sites: Mapping[str, Sequence[Reading]], name: str, count: int) -> Sequence[Reading | None]:
    row = sites.get(name, ())
    return row if len(row) == count else [None] * count
