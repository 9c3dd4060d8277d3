"""Functions that call a method to compute credits and to update feedback.

Training and measuring use the same functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fa_registry.errors import PluginError
from fa_registry.methods.base import CreditInputs, HasFeedbackRule, HasOwnStates, LearnsFeedbackByLoss, Method
from fa_registry.training.detached_network import DetachedModule


@contextmanager
def frozen_weights(network: nn.Module) -> Iterator[None]:
    """Context manager: set requires_grad to False for the network's weights.

    Inside the context, a method can differentiate through the network, but no gradient reaches the weights. Do not differentiate
    through a graph that was built before the context, because autograd reads requires_grad during the backward pass.
    """
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def compute_credits(method: Method, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
    """Return the credits c_0..c_L, detached from any autograd graph."""
    return credits_and_states_of(method, feedback, inputs)[0]


def credits_and_states_of(
    method: Method, feedback: nn.Module, inputs: CreditInputs
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Return the credits c_0..c_L and the states at which the blocks learn.

    The states are `inputs.hidden`, unless the method computes states itself (HasOwnStates). Training and measuring both call this
    function, so both compute credits in the same way. If the card does not declare `needs_autograd`, the method receives a network
    without gradients (DetachedModule).
    """
    with torch.no_grad(), frozen_weights(inputs.network):
        if not method.card.needs_autograd:
            inputs = dataclasses.replace(inputs, network=DetachedModule(inputs.network, method.card.name))
        if isinstance(method, HasOwnStates):
            credits, states = method.credits_and_states(feedback, inputs)
        else:
            credits, states = method.credits(feedback, inputs), inputs.hidden
    return [credit.detach() for credit in credits], states


def fill_feedback_grads(method: Method, feedback: nn.Module, inputs: CreditInputs) -> None:
    """Compute the .grad of the feedback's parameters, if the method trains its feedback."""
    if isinstance(method, LearnsFeedbackByLoss):
        with frozen_weights(inputs.network):
            method.feedback_loss(feedback, inputs).backward()


def update_feedback(method: Method, feedback: nn.Module, inputs: CreditInputs) -> None:
    """After the optimiser's step, update the feedback by the method's update rule, if it has one."""
    if isinstance(method, HasFeedbackRule):
        with torch.no_grad():
            method.update_feedback(feedback, inputs)


def check_finite(name: str, credits: Sequence[Tensor], inputs: CreditInputs) -> None:
    """Raise PluginError, with method, site and shape, if a credit is not finite but all inputs are."""
    input_tensors = (*inputs.hidden, inputs.error, inputs.output_gradient)
    if not all(tensor.isfinite().all() for tensor in input_tensors):
        return
    for site, credit in enumerate(credits):
        nonfinite_count = int((~credit.isfinite()).sum())
        if nonfinite_count:
            raise PluginError(
                f"method {name!r}, site {site}: expected a finite credit, because all states and gradients are finite; found "
                f"inf or nan in {nonfinite_count} of {credit.numel()} entries, shape {tuple(credit.shape)}"
            )
