"""Gradients computed from the forward pass, without the network's backward pass.

The backward pass of some networks does not return the gradient of the loss. For example, a layer with a custom backward pass may
return another signal, and `detach` stops the gradient. For these networks, the forward pass is traced to plain operations, each
`detach` is removed, and the trace is differentiated. If tracing fails, the gradient is estimated by finite differences of the
loss.
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
from fa_registry.tasks import Task

SEED = 0  # seed of the random numbers in a forward pass, so that every pass draws the same numbers
STEP = 1e-6  # step of a difference in float64, relative to the root mean square of the sample's state
WIDEST = 512  # largest number of directions per state along which the loss is differenced; a wider state gets a random subspace
ATEN = torch.ops.aten
VIEWS = (ATEN.view.default, ATEN._unsafe_view.default, ATEN.t.default, ATEN.transpose.int)
IDENTITIES = (ATEN.detach.default, ATEN.detach_.default, ATEN.alias.default)
Shifted = Callable[[Sequence[Tensor]], Tensor]


class TraceError(Exception):
    """The forward pass cannot be traced to plain operations; the message gives the reason."""


class PrecisionWatch(TorchDispatchMode):
    """Context manager that detects operations that round their inputs to a coarser dtype.

    The attribute `coarsest` is the coarsest dtype to which an operation has rounded so far. Its initial value is `precision`.
    """

    def __init__(self, precision: torch.dtype):
        super().__init__()
        self.coarsest = precision

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run the operation, and compare the dtypes of its inputs and its output."""
        out = function(*args, **(kwargs or {}))
        eps = [
            torch.finfo(tensor.dtype).eps
            for tensor in args
            if isinstance(tensor, Tensor) and tensor.is_floating_point()
        ]
        if isinstance(out, Tensor) and out.is_floating_point() and eps and torch.finfo(out.dtype).eps > min(eps):
            self.coarsest = max(self.coarsest, out.dtype, key=lambda kind: torch.finfo(kind).eps)
        return out


@contextmanager
def fixed_draws() -> Iterator[None]:
    """Seed torch's global generators with SEED inside the context, and restore their states at the end."""
    device_indices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=device_indices):
        torch.manual_seed(SEED)
        yield


def draws_numbers(run: Callable[[], Any]) -> bool:
    """Call `run` with fixed seeds, and return whether `run` uses torch's global generators."""
    device_indices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()

    def states() -> list[Tensor]:
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, device_indices)]

    with fixed_draws():
        initial_states = states()
        run()
        return not all(map(torch.equal, initial_states, states()))


def cast(network: nn.Module, precision: torch.dtype) -> dict[str, Tensor]:
    """Return copies of the network's parameters and buffers by name, cast to `precision`.

    Integer tensors are not cast. The tensors are copies, because a forward pass may write into its weights and buffers.
    """

    def converted(tensor: Tensor) -> Tensor:
        return tensor.detach().to(precision if tensor.is_floating_point() else tensor.dtype, copy=True)

    return {name: converted(tensor) for name, tensor in (*network.named_parameters(), *network.named_buffers())}


def as_precision(images: Tensor, precision: torch.dtype) -> Tensor:
    """Cast the input batch to `precision`; integer inputs (token ids) are not cast."""
    return images.detach().to(precision) if images.is_floating_point() else images.detach()


def traced_pass(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    states: Sequence[Tensor],
    precision: torch.dtype,
    task: Task,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Trace the forward pass and compute the gradients of the states.

    Args:
        network: a network in eval mode that accepts `return_hidden` and `shifts`, such as an AdaptedNetwork.
        images: (N, …).
        labels: class numbers (N,) or target values (N, C).
        states: h_0..h_L of this batch. Only the shapes and dtypes are used.
        precision: dtype of weights and input.
        task: the task that defines the loss, or None for the built-in task of the labels' dtype.

    Returns:
        Logits, states and the gradients of the states.

    Raises:
        TraceError: the forward pass cannot be traced or differentiated, for example because its control flow depends on values.
        UsageError: another operation reads h_0 before the shift is added to h_0.
    """

    def run(tensors: dict[str, Tensor], inputs: Tensor, shifts: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        options = {"return_hidden": True, "shifts": shifts}
        logits, hidden, _ = torch.func.functional_call(network, tensors, (inputs,), options)
        return logits, hidden

    from torch.fx.experimental.proxy_tensor import make_fx  # this import loads sympy, which takes half a second

    shifts = [torch.zeros_like(state) for state in states]
    try:
        with fixed_draws(), torch.enable_grad():
            graph = make_fx(run)(cast(network, precision), as_precision(images, precision), shifts)
        for node in list(graph.graph.nodes):
            if node.op == "call_function" and node.target in IDENTITIES:
                node.replace_all_uses_with(node.args[0])
                graph.graph.erase_node(node)
        graph.recompile()
        _refuse_earlier_reads(graph, len(states))
        shifts = [shift.requires_grad_() for shift in shifts]
        with fixed_draws(), torch.enable_grad():
            logits, hidden = graph(cast(network, precision), as_precision(images, precision), shifts)
            loss = task.sample_losses(logits, labels).sum()
            gradients = torch.autograd.grad(loss, shifts, materialize_grads=True)
    except UsageError:
        raise
    except Exception as error:  # third-party forward passes may raise anything on a traced tensor
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise TraceError(f"{type(error).__name__}: {first_line[:200]}") from error
    return logits.detach(), [state.detach() for state in hidden], list(gradients)


READ_EARLIER = (
    "an operation reads h_0, the input of the first site, before the first site runs; choose a first site whose input is not "
    "read by an earlier operation"
)


def _refuse_earlier_reads(graph: torch.fx.GraphModule, sites: int) -> None:
    """Raise UsageError if an operation reads h_0 before the shift is added to h_0.

    The gradient with respect to the shift would not include the contribution of that operation.
    """
    order = {node: index for index, node in enumerate(graph.graph.nodes)}
    shift = [node for node in order if node.op == "placeholder"][-sites]  # of h_0, as the shifts come last
    for node in shift.users:
        if node.target == ATEN.add_.Tensor:
            earlier = [user for user in node.args[0].users if order[user] < order[node] and user.target not in VIEWS]
            if any(user.users for user in earlier):  # an unused copy has no effect
                raise UsageError(f"adapt: {READ_EARLIER}")


def shifted_losses(network: nn.Module, images: Tensor, labels: Tensor, precision: torch.dtype, task: Task) -> Shifted:
    """Return a function that runs the network with shifted states and returns the losses.

    The function takes L+1 shifts, one per state, adds each shift to its state, and returns the losses (N,) of the samples in
    float64. The network must be in eval mode.
    """
    tensors, inputs = cast(network, precision), as_precision(images, precision)
    # After the first pass, the list contains one boolean: whether a pass draws random numbers. If a pass draws none, the seeds are
    # not fixed, because fixing the seeds takes a tenth of the time of a small pass.
    draws_random: list[bool] = []

    def losses(shifts: Sequence[Tensor]) -> Tensor:
        options = {"return_hidden": True, "shifts": list(shifts)}
        with nullcontext() if draws_random == [False] else fixed_draws(), torch.no_grad():
            generator_state = torch.get_rng_state()
            logits, *_ = torch.func.functional_call(network, tensors, (inputs.clone(),), options)
            draws_random[:] = [inputs.device.type != "cpu" or not torch.equal(generator_state, torch.get_rng_state())]
            return task.sample_losses(logits.double(), labels)

    return losses


OWN_DRAWS = (
    "two forward passes of the same batch give different results: draw all random numbers of the model from torch's global "
    "generators, or switch the random numbers off"
)


def is_repeated(losses: Shifted, first_losses: Tensor, states: Sequence[Tensor], precision: torch.dtype) -> bool:
    """Return whether a second pass without shifts gives `first_losses`, (N,), again.

    The tolerance is 100 times the eps of `precision`, the coarsest dtype in which the passes compute. `states` are h_0..h_L.
    For `losses`, see `shifted_losses`.
    """
    resolution = 100 * torch.finfo(precision).eps
    second_losses = losses([torch.zeros_like(state) for state in states])
    return torch.allclose(first_losses, second_losses, resolution, resolution, equal_nan=True)


def are_samples_mixed(losses: Shifted, states: Sequence[Tensor], precision: torch.dtype) -> bool:
    """Return whether the loss of a sample depends on the state of another sample.

    The function shifts the states of the first sample by random vectors, whose size is 1 % of the states' root mean square. It
    then compares the losses of the other samples with and without the shifts.
    """
    generator = torch.Generator().manual_seed(SEED)
    if len(states[0]) < 2:
        return False
    zeros = [torch.zeros_like(state) for state in states]
    shifts = [zero.clone() for zero in zeros]
    for shift, state in zip(shifts, states, strict=True):
        shift[0] = steps_of(state, 0.01)[0] * torch.randn(state.shape[1:], generator=generator).to(state.device)
    tolerance = 100 * torch.finfo(precision).eps
    return not torch.allclose(losses(shifts)[1:], losses(zeros)[1:], rtol=tolerance, atol=0)


def steps_of(state: Tensor, step: float = STEP) -> Tensor:
    """Return the step size of each sample for finite differences of the loss, (N, 1, …).

    The step size is `step` times the root mean square of the sample's state, or `step` if the state is zero.
    """
    size = state.double().square().flatten(1).mean(1).sqrt()
    size = torch.where(size > 0, size, torch.ones_like(size)) * step
    return size.view(-1, *[1] * (state.dim() - 1))


def differenced_gradients(
    losses: Shifted, states: Sequence[Tensor], credits: Sequence[Tensor] | None = None
) -> tuple[list[Tensor], list[float]]:
    """Estimate the gradients by central differences of the loss.

    The function estimates one gradient g with D entries per sample (see `state_vectors`). Each pair of forward passes shifts
    all samples along one direction. If D ≤ WIDEST, there are D directions, and the gradient is exact except for rounding.
    Otherwise the gradient is projected on K = WIDEST random directions and multiplied by √(D/K). The component of this estimate
    along the credit is replaced by the exact component. For the projection Pg, ‖Pg‖²/‖g‖² has the distribution Beta(K/2,
    (D−K)/2) with the relative standard deviation √(2(D−K)/(K(D+2))). The relative standard deviation of the norm is half of
    this value.

    Args:
        losses: function from L+1 shifts to the losses in float64, see `shifted_losses`. Samples must not depend on each other.
        states: h_0..h_L, each (N, …).
        credits: c_0..c_L, one vector per sample, (N, D_l), or None.

    Returns:
        Two lists with one entry per site. The first list contains the gradients in float64, in the shapes of the states. These
            gradients are valid only after `gradient_vectors` has reduced them to vectors. The second list contains the relative
            half width of a 95 % interval of ‖g_l‖, which is 0 if the gradient is exact.
    """
    zeros = [torch.zeros_like(state) for state in states]
    gradients, widths = [], []
    for site, state in enumerate(states):
        entries = state.shape[1] if state.dim() in (2, 4) else state.shape[-1]
        step, flat = steps_of(state), torch.zeros(len(state), entries, dtype=torch.float64, device=state.device)
        count = min(entries, WIDEST)
        basis = _basis(entries, count, state.device)
        credit = None
        if credits is not None and count < entries:  # the unit vector, or zero
            rows = credits[site].double()
            norms = rows.norm(dim=1, keepdim=True)
            credit = torch.where(norms > 0, rows / norms, torch.zeros_like(rows))

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
    """Expand one vector per sample, (N, D), to a shift in the shape of the state.

    In a state (N, T, D), the vector shifts only the class token. In a map (N, C, H, W), it shifts all positions.
    """
    if state.dim() == 2:
        return vectors
    if state.dim() == 4:
        return vectors[:, :, None, None].expand(state.shape)
    shift = torch.zeros(state.shape, dtype=vectors.dtype, device=vectors.device)
    shift[:, 0] = vectors
    return shift


def _basis(entries: int, count: int, device: torch.device) -> Tensor:
    """Return orthonormal directions, (count, entries)."""
    if count == entries:
        return torch.eye(entries, dtype=torch.float64, device=device)
    gaussian = torch.randn(entries, count, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    return torch.linalg.qr(gaussian).Q.T.contiguous().to(device)
