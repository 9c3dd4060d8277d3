"""Asking a method: for its credits, and what its feedback learns from a step. In training and while measuring alike."""

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
    """Inside, no gradient reaches the network's weights: a method may differentiate through it, and never trains it.

    Graphs built before keep their weights: autograd looks at requires_grad again when it arrives at one, so nothing may be
    differentiated through those inside.
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
    """c_0..c_L, off any graph."""
    return credits_and_states_of(method, feedback, inputs)[0]


def credits_and_states_of(
    method: Method, feedback: nn.Module, inputs: CreditInputs
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """c_0..c_L, and the states at which the blocks learn from them: `inputs.hidden` itself for most methods.

    One function for training and for measuring: what is measured of a method that moves states is the credit that drove them.
    A method whose card does not declare `needs_autograd` gets a network without gradients (DetachedModule).
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
    """Fill the .grad of the feedback's parameters, if the method learns any."""
    if isinstance(method, LearnsFeedbackByLoss):
        with frozen_weights(inputs.network):
            method.feedback_loss(feedback, inputs).backward()


def update_feedback(method: Method, feedback: nn.Module, inputs: CreditInputs) -> None:
    """Let the feedback state follow by the method's own rule, if it has one. Called when the optimiser has stepped."""
    if isinstance(method, HasFeedbackRule):
        with torch.no_grad():
            method.update_feedback(feedback, inputs)


def check_finite(name: str, credits: Sequence[Tensor], inputs: CreditInputs) -> None:
    """Raise PluginError naming method, site and shape when a credit holds inf or nan although all it was given is finite."""
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
