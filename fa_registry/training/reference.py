"""Check the reference gradient of a third-party network.

If the gradient is wrong, every metric that depends on this gradient becomes N/A.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fa_registry.architectures import AdaptedNetwork
from fa_registry.architectures.base import Network
from fa_registry.diagnostics import ForwardBackward, Observation, ReferenceCheck, eval_mode
from fa_registry.diagnostics._forward_backward import (
    DIFFERENCES,
    PARTIAL_TRACE,
    TRACED,
    BatchPass,
    Directions,
    estimated_look,
)
from fa_registry.diagnostics._forward_gradient import (
    OWN_DRAWS,
    READ_EARLIER,
    PrecisionWatch,
    as_precision,
    cast,
    fixed_draws,
    is_repeated,
    shifted_losses,
)
from fa_registry.diagnostics._reference_check import TOLERANCE, check_reference
from fa_registry.errors import UsageError
from fa_registry.metrics import REFERENCE_CHECK
from fa_registry.records import Measurements, Reading, unchecked_gradient
from fa_registry.tasks import Task, task_of

WIDTHS = "g_norm_uncertainty"
SAMPLES = 8  # samples of the eval batch that are checked during a training: see decision 06
OTHER_PASS = unchecked_gradient(
    ": the output of the network differs from the output of embed, blocks, step and readout in this order"
)


class ShiftedNetwork(nn.Module):
    """A Network that shifts each state, and calls its parts in the order that Network declares."""

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, return_hidden: bool, shifts: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the logits and the shifted states.

        Args:
            x: input, (N, …).
            return_hidden: always true. The parameter exists because AdaptedNetwork.forward has it too.
            shifts: L+1 tensors, each with the shape of its state.
        """
        network = self.network
        states = [network.embed(x) + shifts[0]]
        for block, shift in zip(network.blocks, shifts[1:], strict=True):
            states.append(network.step(states[-1], block(states[-1])) + shift)
        return network.readout(states[-1]), states


def checked(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    forward_backward: ForwardBackward,
    credits: Sequence[Tensor] | None = None,
    directions: Directions | None = None,
    samples: int | None = None,
    task: Task | None = None,
) -> tuple[ForwardBackward, ReferenceCheck | None]:
    """Check the gradients of a forward/backward pass against finite differences of the loss.

    If the gradient of a traced forward pass is wrong, the function estimates the gradient by finite differences of the loss. The
    network then uses finite differences in all later passes. The network is a Network or an AdaptedNetwork.

    Args:
        x, y, forward_backward: input (N, …), labels (N,), and the forward/backward pass of this batch.
        credits: one vector (N, D_l) per sample and site, or tensors in the shapes of the states, or None.
        directions: as for diagnostics.observe.
        samples: number of samples that are checked first. If their gradients seem wrong, the whole batch is checked, because in
            some networks the samples depend on each other. If None, the whole batch is checked at once. Use None for the final
            measurement, because its check must not be limited to samples that the author of the network knows in advance.
        task: the task, or None for the built-in task that fits the type of the labels.

    Returns:
        The pass to use, and its check. The check is None if finite differences gave the gradient of the returned pass.
    """
    if forward_backward.widths:
        return forward_backward, None
    task = task or task_of(y)
    shifted = ShiftedNetwork(network) if isinstance(network, Network) else network
    with eval_mode(shifted):
        first_samples = slice(samples)
        rows = None if credits is None else [credit[first_samples] for credit in credits]
        check = _check(
            network, shifted, x[first_samples], y[first_samples], _first(forward_backward, first_samples), rows, task
        )
        if check.objection and samples and len(x) > samples:
            check = _check(network, shifted, x, y, forward_backward, credits, task)
    if not check.objection or forward_backward.source != TRACED:
        return forward_backward, check
    try:
        differenced = estimated_look(network, x, y, PARTIAL_TRACE, directions, task)
    except UsageError as error:
        return forward_backward, replace(check, objection=unchecked_gradient(f": {error}"))
    network.gradient = DIFFERENCES  # otherwise the next pass would use the trace, perhaps without a check
    return differenced, None


def _first(forward_backward: ForwardBackward, first_samples: slice) -> ForwardBackward:
    """Return the forward/backward pass restricted to some of its samples."""

    def cut(batch_pass: BatchPass | None) -> BatchPass | None:
        rows = (
            [[tensor[first_samples] for tensor in part] for part in (batch_pass.hidden, batch_pass.gradients)]
            if batch_pass
            else []
        )
        return BatchPass(batch_pass.logits[first_samples], *rows) if batch_pass else None

    return replace(forward_backward, single=cut(forward_backward.single), double=cut(forward_backward.double))


def _check(
    network: nn.Module,
    shifted: nn.Module,
    x: Tensor,
    y: Tensor,
    forward_backward: ForwardBackward,
    credits: Sequence[Tensor] | None,
    task: Task,
) -> ReferenceCheck:
    """Check the gradients of the float64 pass. If there is no float64 pass, check the float32 pass."""
    batch_pass = forward_backward.double or forward_backward.single
    states = batch_pass.hidden
    try:
        losses = shifted_losses(shifted, x, y, states[0].dtype, task)
        with PrecisionWatch(states[0].dtype) as watch:
            unshifted = losses([torch.zeros_like(state) for state in states])
    except RuntimeError as error:
        if batch_pass is not forward_backward.single:
            return _check(network, shifted, x, y, replace(forward_backward, double=None), credits, task)
        objection = unchecked_gradient(f": a forward pass without an autograd graph raises an exception: {error}")
        return ReferenceCheck(tuple(Reading(None, objection) for _ in states), objection)
    if watch.coarsest not in TOLERANCE:
        coarse = f": the forward pass uses {watch.coarsest}, which is too coarse for finite differences of the loss"
        objection = unchecked_gradient(coarse)
    elif not is_repeated(losses, unshifted, states, watch.coarsest):
        objection = unchecked_gradient(f": {OWN_DRAWS}")
    elif isinstance(network, Network) and not torch.allclose(
        unshifted, task.sample_losses(batch_pass.logits.double(), y), rtol=1e-4, atol=1e-4, equal_nan=True
    ):
        objection = OTHER_PASS
    else:
        check = check_reference(losses, states, batch_pass.gradients, credits, watch.coarsest)
        is_first_alone = check.wrong == (0,) and not forward_backward.source and isinstance(network, AdaptedNetwork)
        if not is_first_alone or not _is_read_earlier(network, x, y, batch_pass, task):
            return check
        return replace(check, objection=unchecked_gradient(f": {READ_EARLIER}"))
    return ReferenceCheck(tuple(Reading(None, objection) for _ in states), objection)


def _is_read_earlier(network: AdaptedNetwork, x: Tensor, y: Tensor, batch_pass: BatchPass, task: Task) -> bool:
    """Return whether the network reads h_0 before its first site.

    An operation that reads h_0 before the first site does not receive the shift of h_0.
    """
    precision = batch_pass.hidden[0].dtype
    shifts = [torch.zeros_like(state).requires_grad_() for state in batch_pass.hidden]
    options = {"return_hidden": True, "shifts": shifts}
    with fixed_draws(), torch.enable_grad():
        inputs = (as_precision(x, precision),)
        logits, *_ = torch.func.functional_call(network, cast(network, precision), inputs, options)
        (later_gradient,) = torch.autograd.grad(task.sample_losses(logits, y).sum(), shifts[:1], materialize_grads=True)
    return not torch.allclose(
        later_gradient, batch_pass.gradients[0], rtol=1e-3, atol=1e-6 * later_gradient.abs().max().item()
    )


def unreferenced(observation: Observation) -> Observation:
    """Return a copy of the observation in which every reference gradient is nan."""
    blank = [torch.full_like(gradient, torch.nan) for gradient in observation.gradients]
    full = [torch.full_like(gradient, torch.nan) for gradient in observation.full_gradients]
    return replace(observation, gradients=blank, full_gradients=full, gradients_double=None)


def without_reference(measurements: Measurements, blind_measurements: Measurements, reason: str) -> Measurements:
    """Replace every value that depends on the reference gradient by N/A.

    Args:
        measurements: measurements with the reference gradient.
        blind_measurements: the same measurements without the reference gradient. A value depends on the reference gradient if it
            differs from the value in `measurements`.
        reason: the reason why the reference gradient is wrong, which becomes the reason of every N/A.
    """

    def kept(reading: Reading, other: Reading | None) -> Reading:
        depends_on_reference = (
            other is None or other.value != reading.value or (reading.value is None and other.reason != reading.reason)
        )
        return Reading(None, reason) if depends_on_reference else reading

    sites = {
        name: row
        if name == REFERENCE_CHECK
        else tuple(kept(*pair) for pair in zip(row, _row(blind_measurements.sites, name, len(row)), strict=True))
        for name, row in measurements.sites.items()
    }
    scalars = {
        name: kept(reading, blind_measurements.scalars.get(name)) for name, reading in measurements.scalars.items()
    }
    return replace(measurements, sites=sites, scalars=scalars)


def _row(sites: Mapping[str, Sequence[Reading]], name: str, count: int) -> Sequence[Reading | None]:
    row = sites.get(name, ())
    return row if len(row) == count else [None] * count
