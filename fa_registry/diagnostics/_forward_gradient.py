"""Gradients from the forward computation, for networks whose backward pass is not the derivative.

A layer with a custom backward pass returns a signal other than the gradient; a detached state stops the gradient. There are two
ways to avoid the backward pass. The forward pass is traced to plain operations, in which `detach` is an identity, and the trace
is differentiated. If tracing fails, the gradient is estimated by differences of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fa_registry.errors import UsageError
from fa_registry.terminal_loss import sample_losses

SEED = 0  # for random numbers drawn in a forward pass: every pass draws the same
STEP = 1e-6  # of a float64 difference, relative to the root mean square of the sample's state
WIDEST = 512  # largest number of directions of a state that are differenced: a wider state gets a random subspace
ATEN = torch.ops.aten
VIEWS = (ATEN.view.default, ATEN._unsafe_view.default, ATEN.t.default, ATEN.transpose.int)
IDENTITIES = (ATEN.detach.default, ATEN.detach_.default, ATEN.alias.default)
Shifted = Callable[[Sequence[Tensor]], Tensor]


class TraceError(Exception):
    """The forward pass cannot be traced to plain operations; the text gives the reason."""


class PrecisionWatch(TorchDispatchMode):
    """A context that records in `coarsest` the coarsest type to which an operation rounds a finer one."""

    def __init__(self, precision: torch.dtype):
        super().__init__()
        self.coarsest = precision

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run the operation and compare the types of its inputs and output."""
        out = function(*args, **(kwargs or {}))
        eps = [torch.finfo(held.dtype).eps for held in args if isinstance(held, Tensor) and held.is_floating_point()]
        if isinstance(out, Tensor) and out.is_floating_point() and eps and torch.finfo(out.dtype).eps > min(eps):
            self.coarsest = max(self.coarsest, out.dtype, key=lambda kind: torch.finfo(kind).eps)
        return out


@contextmanager
def fixed_draws() -> Iterator[None]:
    """Seed the global generators with SEED inside the context and restore them afterwards."""
    cards = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=cards):
        torch.manual_seed(SEED)
        yield


def draws_numbers(run: Callable[[], Any]) -> bool:
    """Return whether `run` draws from torch's global generators."""
    cards = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()

    def states() -> list[Tensor]:
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, cards)]

    with fixed_draws():
        before = states()
        run()
        return not all(map(torch.equal, before, states()))


def cast(network: nn.Module, precision: torch.dtype) -> dict[str, Tensor]:
    """Return the network's parameters and buffers, detached and in this precision; integers stay integers.

    Buffers are copies: a forward pass may write into them.
    """

    def converted(held: Tensor) -> Tensor:
        return held.detach().to(precision) if held.is_floating_point() else held.detach()

    parameters = {name: converted(weight) for name, weight in network.named_parameters()}
    return parameters | {name: converted(buffer).clone() for name, buffer in network.named_buffers()}


def as_precision(images: Tensor, precision: torch.dtype) -> Tensor:
    """Return the batch in this precision; token ids stay integers."""
    return images.detach().to(precision) if images.is_floating_point() else images.detach()


def traced_pass(
    network: nn.Module, images: Tensor, labels: Tensor, states: Sequence[Tensor], precision: torch.dtype
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return logits, states and their gradients from the forward pass traced in this precision.

    Args:
        network: takes `return_hidden` and `shifts`, as Adapted does; in eval mode.
        images: (N, …).
        labels: (N,).
        states: h_0..h_L of this batch, for their shapes and types.
        precision: of weights and input.

    Raises:
        TraceError: the forward pass has control flow that depends on values, or an operation without a derivative.
        UsageError: h_0 cannot be shifted, see _refuse_earlier_reads.
    """

    def run(tensors: dict[str, Tensor], inputs: Tensor, shifts: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        options = {"return_hidden": True, "shifts": shifts}
        logits, hidden, _ = torch.func.functional_call(network, tensors, (inputs,), options)
        return logits, hidden

    from torch.fx.experimental.proxy_tensor import make_fx  # it loads sympy, which takes half a second

    shifts = [torch.zeros_like(state) for state in states]
    try:
        with fixed_draws(), torch.enable_grad():
            graph = make_fx(run)(cast(network, precision), as_precision(images, precision), shifts)
        _without_detach(graph)
        _refuse_earlier_reads(graph, len(states))
        shifts = [shift.requires_grad_() for shift in shifts]
        with fixed_draws(), torch.enable_grad():
            logits, hidden = graph(cast(network, precision), as_precision(images, precision), shifts)
            loss = sample_losses(logits, labels).sum()
            gradients = torch.autograd.grad(loss, shifts, materialize_grads=True)
    except UsageError:
        raise
    except Exception as error:  # third-party forward passes may raise anything on a traced tensor
        line = next(iter(str(error).strip().splitlines()), "")
        raise TraceError(f"{type(error).__name__}: {line[:200]}") from error
    return logits.detach(), [state.detach() for state in hidden], list(gradients)


def _without_detach(graph: torch.fx.GraphModule) -> None:
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and node.target in IDENTITIES:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()


READ_EARLIER = (
    "h_0, the input of the first site, is also read before the first site runs: name as the first site a module whose input "
    "nothing reads before it"
)


def _refuse_earlier_reads(graph: torch.fx.GraphModule, sites: int) -> None:
    """Raise UsageError if an operation reads h_0 before it is shifted.

    The gradient would lack the part that passes through that operation.
    """
    order = {node: place for place, node in enumerate(graph.graph.nodes)}
    shift = [node for node in order if node.op == "placeholder"][-sites]  # of h_0: the shifts come last
    for node in shift.users:
        if node.target == ATEN.add_.Tensor:
            earlier = [user for user in node.args[0].users if order[user] < order[node] and user.target not in VIEWS]
            if any(user.users for user in earlier):  # an unused copy has no effect
                raise UsageError(f"adapt: {READ_EARLIER}")


def shifted_losses(network: nn.Module, images: Tensor, labels: Tensor, precision: torch.dtype) -> Shifted:
    """Return a function from L+1 shifts of the states to the samples' losses, (N,) of float64.

    The network must be in eval mode.
    """
    tensors, inputs = cast(network, precision), as_precision(images, precision)
    # whether a pass draws numbers, known after the first pass; fixing the seeds takes a tenth of the time of a small pass
    draws: list[bool] = []

    def losses(shifts: Sequence[Tensor]) -> Tensor:
        options = {"return_hidden": True, "shifts": list(shifts)}
        with nullcontext() if draws == [False] else fixed_draws(), torch.no_grad():
            before = torch.get_rng_state()
            logits, *_ = torch.func.functional_call(network, tensors, (inputs.clone(),), options)
            draws[:] = [inputs.device.type != "cpu" or not torch.equal(before, torch.get_rng_state())]
            return sample_losses(logits.double(), labels)

    return losses


OWN_DRAWS = (
    "two forward passes of the same batch differ: let the model draw from torch's global generators, or stop its noise"
)


def is_repeated(losses: Shifted, plain: Tensor, states: Sequence[Tensor], precision: torch.dtype) -> bool:
    """Return whether another pass without shifts gives the same losses.

    `precision` is the coarsest of the passes.
    """
    resolution = 100 * torch.finfo(precision).eps
    again = losses([torch.zeros_like(state) for state in states])
    return torch.allclose(plain, again, resolution, resolution, equal_nan=True)


def are_samples_mixed(losses: Shifted, states: Sequence[Tensor], precision: torch.dtype) -> bool:
    """Return whether a sample's loss depends on another sample's state.

    The first sample's states are shifted by 1 %.
    """
    draw = torch.Generator().manual_seed(SEED)
    if len(states[0]) < 2:
        return False
    zeros = [torch.zeros_like(state) for state in states]
    first = [zero.clone() for zero in zeros]
    for shift, state in zip(first, states, strict=True):
        shift[0] = steps_of(state, 0.01)[0] * torch.randn(state.shape[1:], generator=draw).to(state.device)
    tolerance = 100 * torch.finfo(precision).eps
    return not torch.allclose(losses(first)[1:], losses(zeros)[1:], rtol=tolerance, atol=0)


def steps_of(state: Tensor, step: float = STEP) -> Tensor:
    """Return the difference step of every sample of a state (N, …), as (N, 1, …).

    It is relative to the root mean square of the sample's state.
    """
    size = state.double().square().flatten(1).mean(1).sqrt()
    size = torch.where(size > 0, size, torch.ones_like(size)) * step
    return size.view(-1, *[1] * (state.dim() - 1))


def differenced_gradients(
    losses: Shifted, states: Sequence[Tensor], credits: Sequence[Tensor] | None = None
) -> tuple[list[Tensor], list[float]]:
    """Return estimates of the gradients by differences of the loss, and the uncertainty of their norms.

    All samples are shifted along one direction at a time, in the vector per sample that diagnostics use (`state_vectors`). If the
    vector has up to WIDEST entries, the gradient is exact except for rounding. Otherwise it is computed in a random subspace of
    WIDEST directions: its part along the credit is exact, the rest is scaled to the gradient's expected norm. ‖Pg‖²/‖g‖² is
    Beta(K/2, (D−K)/2) distributed, with relative standard deviation √(2(D−K)/(K(D+2))); that of the norm is half of it.

    Args:
        losses: from `shifted_losses`, in float64. Samples must not depend on each other.
        states: h_0..h_L, each (N, …).
        credits: c_0..c_L, one vector per sample, (N, D_l); their directions are always differenced.

    Returns:
        Gradients of the states' shapes, float64, whose `gradient_vectors` are right; and the relative half width of a 95 %
        interval of ‖g_l‖, 0 where exact.
    """
    zeros = [torch.zeros_like(state) for state in states]
    gradients, widths = [], []
    for site, state in enumerate(states):
        entries = state.shape[1] if state.dim() in (2, 4) else state.shape[-1]
        step, flat = steps_of(state), torch.zeros(len(state), entries, dtype=torch.float64, device=state.device)
        count = min(entries, WIDEST)
        basis = _basis(entries, count, state.device)
        credit = None if credits is None or count == entries else _unit(credits[site].double())

        def slope(direction: Tensor, site: int = site, state: Tensor = state, step: Tensor = step) -> Tensor:
            shift = (in_state(direction.expand(len(step), -1), state) * step).to(state.dtype)
            up, down = (losses([*zeros[:site], sign * shift, *zeros[site + 1 :]]) for sign in (1, -1))
            return (up - down) / (2 * step.flatten())

        for direction in basis:
            flat += slope(direction)[:, None] * direction
        if count < entries:
            flat *= math.sqrt(entries / count)
        if credit is not None:
            flat += (slope(credit) - (flat * credit).sum(1))[:, None] * credit
        positions = state[0, 0].numel() if state.dim() == 4 else 1
        gradients.append(in_state(flat, state) / positions)
        variance = 2 * (entries - count) / (count * (entries + 2))
        widths.append(1.96 * math.sqrt(variance) / 2)
    return gradients, widths


def in_state(vectors: Tensor, state: Tensor) -> Tensor:
    """Return vectors (N, D) as a shift of the state: of the class token, or of all positions of a map."""
    if state.dim() == 2:
        return vectors
    if state.dim() == 4:
        return vectors[:, :, None, None].expand(state.shape)
    shift = torch.zeros(state.shape, dtype=vectors.dtype, device=vectors.device)
    shift[:, 0] = vectors
    return shift


def _basis(entries: int, count: int, device: torch.device) -> Tensor:
    """Return `count` orthonormal directions, (count, entries): the unit vectors, or a random subspace."""
    if count == entries:
        return torch.eye(entries, dtype=torch.float64, device=device)
    draw = torch.randn(entries, count, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    return torch.linalg.qr(draw).Q.T.contiguous().to(device)


def _unit(rows: Tensor) -> Tensor:
    norms = rows.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, rows / norms, torch.zeros_like(rows))
