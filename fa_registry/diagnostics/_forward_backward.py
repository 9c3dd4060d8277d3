"""Forward and backward passes over the evaluation batch in eval mode.

The tensors of these passes are converted to an Observation, which is the input of every diagnostic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network, recorded_streams
from fa_registry.diagnostics._forward_gradient import (
    OWN_DRAWS,
    PrecisionWatch,
    TraceError,
    are_samples_mixed,
    as_precision,
    cast,
    differenced_gradients,
    draws_numbers,
    fixed_draws,
    is_repeated,
    shifted_losses,
    traced_pass,
)
from fa_registry.diagnostics.base import Observation
from fa_registry.errors import UsageError
from fa_registry.network_mode import eval_mode
from fa_registry.tasks import Task, task_of

CreditRule = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor, Tensor], Sequence[Tensor]]
TRACED = "computed from the traced forward pass"
ESTIMATED = "estimated from forward passes"
DIFFERENCES = "differences"  # `gradient` of a network whose trace was found to be wrong
# operations outside torch are constants in a trace
PARTIAL_TRACE = "the trace does not contain all operations of the forward pass"
ONLY_SUMS = "the gradient is estimated from forward passes, which give only its sum over positions"
Directions = Callable[[Sequence[Tensor]], Sequence[Tensor]]  # states → one vector per sample, (N, D_l), for each site


@dataclass(frozen=True)
class BatchPass:
    """Result of one forward and backward pass; all tensors are detached.

    Attributes:
        logits: (N, C).
        hidden: the states h_0..h_L, each (N, …), with all tokens or pixels.
        gradients: the gradients of the states, in the shapes of the states.
        streams: site → the state before the norm that ends the block, for blocks that name this norm.
    """

    logits: Tensor
    hidden: list[Tensor]
    gradients: list[Tensor]
    streams: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ForwardBackward:
    """A pass over one batch in the network's precision, and optionally a second pass in float64.

    Args:
        error: output error e = ∂ℓ_i/∂z_i of the first pass, (N, C). For classes, e = softmax(z) − onehot(y).
        onehot: labels in the shape of the logits, (N, C). For classes, the rows are one-hot.
        task: the task, which determines the rows of an Observation.
        source: how the gradients were computed. It is empty if the network's backward pass computed them.
        widths: relative half width of the 95 % interval of ‖g_l‖, one number per site. It is empty if the gradients are not
            estimates.
    """

    single: BatchPass
    double: BatchPass | None
    error: Tensor
    onehot: Tensor
    task: Task
    labels: Tensor
    source: str = ""
    widths: Sequence[float] = ()

    def observation(self, credits: Sequence[Tensor] | None, **other_fields: Any) -> Observation:
        """Convert the passes to an Observation with one vector per site and row.

        A row is a sample or a position. `credits` is one tensor (N, …) per site, or None. `other_fields` are the fields of the
        Observation that the passes do not provide, such as `no_credits`.
        """
        hidden, streams = self.single.hidden, self.single.streams
        before_norms = [streams.get(site, state) for site, state in enumerate(hidden)] if streams else []
        return Observation(
            hidden=[self.task.state_rows(state, self.labels) for state in hidden],
            stream=[self.task.state_rows(state, self.labels) for state in before_norms],
            gradients=self.rows(self.single.gradients),
            error=self.task.error_rows(self.error, self.labels),
            gradients_double=None if self.double is None else self.rows(self.double.gradients),
            credits=None if credits is None else self.rows(credits),
            full_gradients=self.single.gradients,
            full_credits=credits or (),
            no_full_gradients=ONLY_SUMS if self.widths else "",
            **other_fields,
        )

    def rows(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Convert credits, or the gradients of states, to one tensor (rows, D_l) per site."""
        return [self.task.gradient_rows(gradient, self.labels) for gradient in gradients]


def run_forward_backward(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    double: bool = True,
    directions: Directions | None = None,
    task: Task | None = None,
) -> ForwardBackward:
    """Run the network forward and backward over one batch in eval mode.

    The attribute `gradient` of an adapted model selects how the gradients are computed: "backward" by the backward pass, "forward"
    by tracing the forward pass, and "differences" by finite differences of the loss. In each pass, an adapted model draws its
    random numbers from a fixed seed.

    Args:
        network: a network whose forward(x, return_hidden=True) returns (logits, [h_0..h_L]) on one autograd graph. An adapted
            model also returns a list of root tensors. The loss is then differentiated with respect to the root tensors.
        images: (N, …), floating or integer (token ids).
        labels: class numbers (N,), target values (N, C) or tokens (N, T).
        double: whether to run a second pass in float64. This pass is skipped if an adapted model does not support float64. It is
            also skipped if the model draws random numbers, because these would differ between the passes.
        directions: function that maps the states to one direction (N, D_l) per site, usually the credit. If the gradient of a site
            is estimated, it is exact along the direction of this site.
        task: the task that defines the loss, or None for the built-in task of the labels' dtype.
    """
    task = task or task_of(labels)
    with eval_mode(network):
        precision = images.dtype if images.is_floating_point() else weight_dtype(network)
        gradient = getattr(network, "gradient", "backward")
        if gradient == DIFFERENCES:
            return estimated_look(network, images, labels, PARTIAL_TRACE, directions, task)
        if gradient == "forward":
            return _forward_pass(network, images, labels, precision, double, directions, task)
        if isinstance(network, Network):
            single = _pass(network, images, labels, precision, task)
            return _look(single, _pass(network, images, labels, torch.float64, task) if double else None, labels, task)
        passes: list[BatchPass] = []
        draws_random = draws_numbers(lambda: passes.append(_pass(network, images, labels, precision, task)))
        with fixed_draws(), suppress(RuntimeError):  # raised by a forward pass that supports only one precision
            passes += [_pass(network, images, labels, torch.float64, task)] if double and not draws_random else []
    return _look(passes[0], passes[1] if len(passes) > 1 else None, labels, task)


def _look(
    single: BatchPass,
    double: BatchPass | None,
    labels: Tensor,
    task: Task,
    source: str = "",
    widths: Sequence[float] = (),
) -> ForwardBackward:
    rows = task.target_rows(single.logits, labels)
    error = task.output_error(single.logits, labels, rows)
    return ForwardBackward(single, double, error, rows, task, labels, source, widths)


def _forward_pass(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    precision: torch.dtype,
    double: bool,
    directions: Directions | None,
    task: Task,
) -> ForwardBackward:
    outputs: list[Any] = []
    draws_random = draws_numbers(lambda: outputs.extend(_plain_pass(network, images, precision)))
    _, states, streams = outputs
    try:
        single = BatchPass(*traced_pass(network, images, labels, states, precision, task), streams)
    except TraceError as error:
        return estimated_look(network, images, labels, f"the trace failed: {error}", directions, task)
    double_pass = None
    with suppress(TraceError):  # raised by a forward pass that supports only one precision
        double_states = [state.double() for state in states]
        double_pass = (
            BatchPass(*traced_pass(network, images, labels, double_states, torch.float64, task))
            if double and not draws_random
            else None
        )
    return _look(single, double_pass, labels, task, TRACED)


def _plain_pass(
    network: nn.Module, images: Tensor, precision: torch.dtype
) -> tuple[Tensor, list[Tensor], Mapping[int, Tensor]]:
    inputs = (as_precision(images, precision).clone(),)
    with torch.no_grad(), recorded_streams(network) as streams:
        logits, states, *_ = torch.func.functional_call(
            network, cast(network, precision), inputs, {"return_hidden": True}
        )
    return logits, states, streams


def estimated_look(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    reason: str,
    directions: Directions | None,
    task: Task,
) -> ForwardBackward:
    """Run the network forward, and estimate the gradients by finite differences of the loss.

    All arguments except `reason` are those of `run_forward_backward`.

    Args:
        network: an adapted model, which accepts `shifts`.
        images: (N, …), floating or integer (token ids).
        labels: class numbers (N,) or target values (N, C).
        reason: the reason why the gradients were not computed by tracing the forward pass.

    Raises:
        UsageError: the forward pass does not compute in float64, a second pass gives different losses, or the loss of a sample
            depends on other samples.
    """
    if task.by_position:
        raise UsageError(
            f"gradient='forward': the task {task.card.name} has one loss per position and therefore needs a forward pass that "
            f"torch can trace; torch cannot trace this one: {reason}"
        )
    precision = images.dtype if images.is_floating_point() else weight_dtype(network)
    with eval_mode(network), fixed_draws():
        logits, states, streams = _plain_pass(network, images, precision)
    double_states, watch = [state.double() for state in states], PrecisionWatch(torch.float64)
    with eval_mode(network):
        try:
            losses = shifted_losses(network, images, labels, torch.float64, task)
            with watch:
                unshifted_losses = losses([torch.zeros_like(state) for state in double_states])
            problem = "" if watch.coarsest == torch.float64 else f"the forward pass rounds to {watch.coarsest}"
        except RuntimeError as error:
            problem = f"{type(error).__name__}: {str(error)[:200]}"
        if not problem and not is_repeated(losses, unshifted_losses, double_states, torch.float64):
            problem = OWN_DRAWS
        if not problem and are_samples_mixed(losses, double_states, torch.float64):
            problem = "the loss of a sample depends on other samples"
        if problem:
            raise UsageError(
                "gradient='forward': expected a forward pass that torch can trace, or a forward pass in float64 in which the loss "
                f"of a sample does not depend on other samples; found neither. Trace: {reason}. Float64: {problem}"
            )
        gradients, widths = differenced_gradients(losses, double_states, directions(states) if directions else None)
    single = BatchPass(logits, states, [gradient.to(precision) for gradient in gradients], streams)
    return _look(single, None, labels, task, f"{ESTIMATED}: {reason}", widths)


def observe(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    credit_rule: CreditRule | None = None,
    no_credits: str = "no method was given",
    exact: tuple[bool, ...] = (),
    double: bool = True,
    task: Task | None = None,
) -> Observation:
    """Run the network forward and backward, and return an Observation of the batch.

    Args:
        network: see `run_forward_backward`, also for the arguments `double` and `task`.
        images: (N, …).
        labels: class numbers (N,) or target values (N, C).
        credit_rule: function (hidden, gradients, error, onehot) → one credit (N, …) per site, or None. For the arguments, see
            `BatchPass` and `ForwardBackward`.
        no_credits: the reason why `credit_rule` is None.
        exact: for every site, whether the credit equals the gradient by construction.
    """
    forward_backward = run_forward_backward(network, images, labels, double, task=task)
    credits = None
    if credit_rule:
        credits = credit_rule(
            forward_backward.single.hidden,
            forward_backward.single.gradients,
            forward_backward.error,
            forward_backward.onehot,
        )
    return forward_backward.observation(credits, no_credits=no_credits, exact=exact)


def weight_dtype(network: nn.Module) -> torch.dtype:
    """Return the dtype of the first floating parameter, or torch's default dtype if there is none."""
    dtypes = (weight.dtype for weight in network.parameters() if weight.is_floating_point())
    return next(dtypes, torch.get_default_dtype())


def site_gradients(logits: Tensor, hidden: Sequence[Tensor], labels: Tensor, task: Task | None = None) -> list[Tensor]:
    """Compute the gradient g_l = ∂(Σ_i ℓ_i)/∂h_l with respect to every state h_l.

    Each gradient has the shape of its state. Row i is the gradient of the loss of sample i, without a factor 1/N.
    tests/diagnostics/test_observe.py compares the gradients with central differences at every site, for three batch sizes.
    """
    losses = (task or task_of(labels)).sample_losses(logits, labels)
    return list(torch.autograd.grad(losses.sum(), hidden))


def _pass(network: nn.Module, images: Tensor, labels: Tensor, precision: torch.dtype, task: Task) -> BatchPass:
    """Run a forward and a backward pass with the weights cast to `precision`.

    The gradients of the weights are not needed. A floating-point input therefore requires grad instead of the weights, and
    autograd records a graph with all states. An integer input (token ids) cannot require grad. In this case, the weights require
    grad.
    """
    inputs, tensors = as_precision(images, precision), cast(network, precision)
    if inputs.is_floating_point():
        inputs.requires_grad_()
    else:
        for weight in dict(network.named_parameters()).keys() & tensors.keys():
            if tensors[weight].is_floating_point():
                tensors[weight].requires_grad_()
    with recorded_streams(network) as streams:
        if isinstance(network, Network):
            logits, hidden, *_ = torch.func.functional_call(network, tensors, (inputs,), {"return_hidden": True})
            return replace(_differentiated(logits, hidden, hidden, labels, task), streams=streams)
        prefixed_tensors = {f"network.{name}": tensor for name, tensor in tensors.items()}
        batch_pass = torch.func.functional_call(_Differentiated(network, task), prefixed_tensors, (inputs, labels))
        return replace(batch_pass, streams=streams)


class _Differentiated(nn.Module):
    """Module whose `forward` runs both the forward and the backward pass of a network.

    `functional_call` replaces the weights only during this method. Therefore a backward pass that recomputes activations
    (checkpointing) uses the same weights as the forward pass.
    """

    def __init__(self, network: nn.Module, task: Task):
        super().__init__()
        self.network, self.task = network, task

    def forward(self, inputs: Tensor, labels: Tensor) -> BatchPass:
        logits, hidden, *roots = self.network(inputs, return_hidden=True)
        return _differentiated(logits, hidden, roots[0] if roots else hidden, labels, self.task)


def _differentiated(
    logits: Tensor, hidden: Sequence[Tensor], roots: Sequence[Tensor], labels: Tensor, task: Task
) -> BatchPass:
    gradients = site_gradients(logits, roots, labels, task)
    return BatchPass(logits.detach(), [state.detach() for state in hidden], gradients)
