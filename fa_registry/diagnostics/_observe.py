"""Looking at a network: one pass over the eval batch in eval mode that yields an Observation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fa_registry.diagnostics.base import Observation

CreditRule = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor, Tensor], Sequence[Tensor]]


def observe(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    credit_rule: CreditRule | None = None,
    no_credits: str = "no method was given",
    exact: tuple[bool, ...] = (),
    double: bool = True,
) -> Observation:
    """Observe `network`, whose forward(x, return_hidden=True) gives (logits, [h_0..h_L]) on one graph.

    A third list may follow: the tensors to differentiate for the states, where a state itself is not on the graph.

    images (N, …), floating or integer (token ids); labels (N,). credit_rule(hidden, gradients, error, onehot) → credits, all
    (N, …); None if there is none, and then no_credits says why. exact: per site, whether the credit is g by construction.
    double: also run in float64.
    """
    with evaluating(network):
        precision = images.dtype if images.is_floating_point() else weight_dtype(network)
        logits, hidden, gradients = _pass(network, images, labels, precision)
        doubled = _pass(network, images, labels, torch.float64)[2] if double else None
    states = [state.detach() for state in hidden]
    onehot = nn.functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    error = logits.detach().softmax(dim=1) - onehot
    credits = credit_rule(states, gradients, error, onehot) if credit_rule else None
    return Observation(
        hidden=[state_vectors(state) for state in states],
        gradients=[gradient_vectors(gradient) for gradient in gradients],
        error=error,
        gradients_double=[gradient_vectors(gradient) for gradient in doubled] if doubled else None,
        credits=[gradient_vectors(credit) for credit in credits] if credits is not None else None,
        no_credits=no_credits,
        exact=exact,
    )


def weight_dtype(network: nn.Module) -> torch.dtype:
    """Of the first floating parameter; torch's default where there is none."""
    kinds = (weight.dtype for weight in network.parameters() if weight.is_floating_point())
    return next(kinds, torch.get_default_dtype())


def site_gradients(logits: Tensor, hidden: Sequence[Tensor], labels: Tensor) -> list[Tensor]:
    """g_l = ∂(Σ_i ℓ_i)/∂h_l for every site; row i is sample i's own gradient."""
    loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
    return list(torch.autograd.grad(loss, hidden))


def _pass(
    network: nn.Module, images: Tensor, labels: Tensor, precision: torch.dtype
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits, states and their gradients, forward and backward in `precision`, with the network's weights cast to it.

    The weights do not require grad, so that no gradient of a weight is computed; the input does, to keep the states on a graph.
    Integer inputs (token ids) cannot, so there the weights do.
    """
    differentiable = images.is_floating_point()
    tensors = {
        name: value.detach().to(precision).requires_grad_(not differentiable and isinstance(value, nn.Parameter))
        if value.is_floating_point()
        else value
        for name, value in [*network.named_parameters(), *network.named_buffers()]
    }
    inputs = images.detach().to(precision).requires_grad_() if differentiable else images
    logits, hidden, *roots = torch.func.functional_call(network, tensors, (inputs,), {"return_hidden": True})
    return logits, hidden, site_gradients(logits, roots[0] if roots else hidden, labels)


def state_vectors(state: Tensor) -> Tensor:
    """One vector a sample: features as they are, tokens (N, T, D) by the class token, maps (N, C, H, W) by the mean."""
    if state.dim() == 2:
        return state
    return state[:, 0] if state.dim() == 3 else state.mean(dim=(2, 3))


def gradient_vectors(gradient: Tensor) -> Tensor:
    """The gradient for the vector of `state_vectors`: the class token's, or a map's sum over positions.

    A map's pooled state moves by δ when every position moves by δ, so its gradient is the sum, not the mean.
    """
    if gradient.dim() == 2:
        return gradient
    return gradient[:, 0] if gradient.dim() == 3 else gradient.sum(dim=(2, 3))


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Eval mode inside (BatchNorm and dropout must not depend on the batch while measuring), each module's own after."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
