"""Calls of a method, for its credits and its feedback's learning, in training and measuring alike."""

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
    """Context manager: no gradient reaches the network's weights.

    So a method may differentiate through the network but never trains it. Graphs built before depend on the weights'
    requires_grad, which autograd reads during the backward pass; do not differentiate through them inside.
    """
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def compute_credits(method: Method, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
    """Return c_0..c_L, off any graph."""
    return credits_and_states_of(method, feedback, inputs)[0]


def credits_and_states_of(
    method: Method, feedback: nn.Module, inputs: CreditInputs
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Return c_0..c_L and the states at which the blocks learn, usually `inputs.hidden`.

    Training and measuring share this function, so that the measured credit of a method that moves states is the one that moved
    them. A method whose card does not declare `needs_autograd` gets a network without gradients (DetachedModule).
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
    """Fill the .grad of the feedback's parameters, if the method trains any."""
    if isinstance(method, LearnsFeedbackByLoss):
        with frozen_weights(inputs.network):
            method.feedback_loss(feedback, inputs).backward()


def update_feedback(method: Method, feedback: nn.Module, inputs: CreditInputs) -> None:
    """Update the feedback state by the method's own rule, if it has one, after the optimiser's step."""
    if isinstance(method, HasFeedbackRule):
        with torch.no_grad():
            method.update_feedback(feedback, inputs)


def check_finite(name: str, credits: Sequence[Tensor], inputs: CreditInputs) -> None:
    """Raise PluginError if a credit contains inf or nan although all inputs are finite.

    The message names method, site and shape.
    """
    given = (*inputs.hidden, inputs.error, inputs.output_gradient)
    if not all(tensor.isfinite().all() for tensor in given):
        return
    for site, credit in enumerate(credits):
        broken = int((~credit.isfinite()).sum())
        if broken:
            raise PluginError(
                f"method {name!r}, site {site}: {broken} of the credit's {credit.numel()} entries, shape "
                f"{tuple(credit.shape)}, are inf or nan although the network's states and gradients are finite"
            )
