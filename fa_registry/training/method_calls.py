"""Functions that call a method to compute credits and to update feedback, in training and measuring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.errors import PluginError
from fa_registry.methods.base import (
    CreditedStates,
    CreditInputs,
    HasFeedbackRule,
    HasOwnStates,
    LearnsFeedbackByLoss,
    Method,
)


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
    """Return the credits c_0..c_L, one row per sample, detached from any autograd graph."""
    return credits_and_states_of(method, feedback, inputs).per_sample(len(inputs.hidden[0]))


def credits_and_states_of(method: Method, feedback: nn.Module, inputs: CreditInputs) -> CreditedStates:
    """Return the credits c_0..c_L and the states at which the blocks learn.

    Only a method with HasOwnStates computes states itself. Training and measuring both call this function, so both compute credits
    in the same way. If the card does not declare `needs_autograd`, the method receives a network
    without gradients (DetachedModule).
    """
    with torch.no_grad(), frozen_weights(inputs.network):
        if not method.card.needs_autograd:
            inputs = dataclasses.replace(inputs, network=DetachedModule(inputs.network, method.card.name))
        if isinstance(method, HasOwnStates):
            credited = method.credits_and_states(feedback, inputs)
            if not isinstance(credited, CreditedStates):
                found = type(credited).__name__
                raise PluginError(
                    f"method {method.card.name!r}: credits_and_states: expected CreditedStates, found a {found}"
                )
        else:
            credited = CreditedStates(method.credits(feedback, inputs))
    return dataclasses.replace(credited, credits=[credit.detach() for credit in credited.credits])


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
        if not credit.isfinite().all():
            nonfinite_count = int((~credit.isfinite()).sum())
            raise PluginError(
                f"method {name!r}, site {site}: expected a finite credit, because all states and gradients are finite; found "
                f"inf or nan in {nonfinite_count} of {credit.numel()} entries, shape {tuple(credit.shape)}"
            )


# Methods of nn.Module that only read. All other methods change the module, so the view refuses them.
READERS = (
    *("get_submodule", "get_parameter", "get_buffer", "parameters", "named_parameters", "buffers", "named_buffers"),
    *("modules", "named_modules", "children", "named_children", "state_dict", "extra_repr"),
)


class DetachedModule:
    """Read-only view of a module, for methods whose card does not declare `needs_autograd`.

    Its tensors are copies without an autograd graph. The view raises PluginError in three cases: a call in grad mode, an
    assignment to an attribute, and a call of a method of nn.Module that changes the module. Calls return tensors without an
    autograd graph. The view is not a sandbox. Python code can reach the original network in other ways, or build a second network
    from the values. fa_registry.evidence.backprop_check measures the credits of such code.
    """

    def __init__(self, module: nn.Module, method: str):
        """Create a view of `module`; error messages name the training method `method`."""
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_method", method)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._values(self._module, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if name in READERS:
            return lambda *arguments, **keywords: self._read(value(*arguments, **keywords))
        if isinstance(value, (Tensor, nn.Module)):
            return self._read(value)
        if not callable(value):
            return value
        if hasattr(nn.Module, name) and name != "forward":
            raise PluginError(f"{self._subject} is read-only and does not provide {name!r}")
        return lambda *arguments, **keywords: self._values(value, arguments, keywords)

    def __setattr__(self, name: str, value: Any) -> None:
        raise PluginError(f"{self._subject} is read-only, so the attribute {name!r} cannot be set")

    def __iter__(self) -> Iterator[Any]:
        return map(self._read, iter(self._module))

    def __len__(self) -> int:
        return len(self._module)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._module[index])

    @property
    def _subject(self) -> str:
        return f"method {self._method!r}: inputs.network"

    def _values(self, compute: Callable, arguments: tuple, keywords: Mapping[str, Any]) -> Any:
        """Call `compute` with detached arguments. Raise PluginError in grad mode."""
        if torch.is_grad_enabled():
            raise PluginError(
                f"{self._subject} was called in grad mode, but the method's card does not declare autograd; "
                "if the credit rule differentiates through the network, set needs_autograd=True on the card"
            )
        detached_keywords = {name: _detached(value) for name, value in keywords.items()}
        return compute(*map(_detached, arguments), **detached_keywords)

    def _read(self, value: Any) -> Any:
        """Replace every module in `value` by a view and every tensor by a copy."""
        if isinstance(value, nn.Module):
            return DetachedModule(value, self._method)
        if isinstance(value, Tensor):
            return value.detach().clone()
        if isinstance(value, Mapping):
            return {name: self._read(item) for name, item in value.items()}
        if isinstance(value, tuple):
            return tuple(map(self._read, value))
        return map(self._read, value) if isinstance(value, Iterator) else value


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
