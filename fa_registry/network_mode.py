"""Modes, gradients and tensors of a network during a measurement."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


@contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """Switch the network to eval mode inside the context.

    In eval mode, BatchNorm and dropout do not depend on the batch. At the end of the context, each module's previous mode is
    restored. A class may replace `train(mode)`, for example to keep a BatchNorm frozen: its version is called. If `train` of a
    class takes other arguments, such as a batch, nn.Module.train sets the mode of its modules instead.
    """
    modes = [(module, module.training) for module in modules_of(network)]
    had_training_mode = network.training
    try:
        if any(mode for _, mode in modes):  # contexts may be nested; an inner context changes nothing
            _set_mode(network, False)
        yield
    finally:
        if had_training_mode and any(_replaces_train(module) for module, _ in modes):
            _set_mode(network, True)  # the author's train(mode) may undo what it did for eval mode
        for module, mode in modes:
            if module.training != mode:  # nn.Module.__setattr__ takes longer than the comparison
                module.training = mode


def modules_of(network: nn.Module) -> list[nn.Module]:
    """Return all modules of a network, each once; `network.modules()` takes five times as long."""
    modules = {network: None}
    queue = [network]
    for module in queue:
        new_modules = dict.fromkeys(
            child for child in module._modules.values() if child is not None and child not in modules
        )
        modules |= new_modules
        queue += new_modules
    return queue


def _set_mode(network: nn.Module, mode: bool) -> None:
    """Call network.train(mode), with nn.Module.train in place of every `train` that takes other arguments."""
    with ExitStack() as restored:
        for module in network.modules():
            if _replaces_train(module) and not _takes_mode(module.train):
                restored.callback(
                    vars(module).update, {name: vars(module)[name] for name in vars(module).keys() & {"train"}}
                )
                restored.callback(vars(module).pop, "train")
                vars(module)["train"] = partial(nn.Module.train, module)
        network.train(mode)


def _replaces_train(module: nn.Module) -> bool:
    return type(module).train is not nn.Module.train or "train" in vars(module)


def _takes_mode(train: Callable[..., object]) -> bool:
    """Return whether `train` sets a mode: its one argument is a boolean or is called `mode`."""
    parameters = list(inspect.signature(train).parameters.values()) if callable(train) else []
    if not parameters:
        return False
    first, *others = parameters
    optional = (first.VAR_POSITIONAL, first.VAR_KEYWORD)
    if any(other.default is other.empty and other.kind not in optional for other in others):
        return False
    is_boolean = isinstance(first.default, bool) or first.annotation in (bool, "bool")
    return is_boolean or first.name == "mode" or first.kind is first.VAR_POSITIONAL


@contextmanager
def gradients_enabled() -> Iterator[None]:
    """Record gradients inside the context, also if the caller is in no_grad or inference_mode."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def usable_for_gradients(value: Any) -> Any:
    """Return a value, or a copy of a tensor that was made in inference_mode.

    Autograd refuses such a tensor.
    """
    if not isinstance(value, Tensor) or not value.is_inference():
        return value
    copied = value.detach().clone()
    return nn.Parameter(copied, value.requires_grad) if isinstance(value, nn.Parameter) else copied


@contextmanager
def tensors_unchanged(network: nn.Module) -> Iterator[None]:
    """Restore the parameters and buffers on exit, because a forward pass may write or replace them.

    Inside the context, copies replace tensors that were made in inference_mode.
    """
    tables = [table for module in network.modules() for table in (module._parameters, module._buffers)]
    saved = [
        (table, name, tensor, tensor.detach().clone())
        for table in tables
        for name, tensor in table.items()
        if tensor is not None and not is_lazy(tensor)
    ]
    for table, name, tensor, _ in saved:
        table[name] = usable_for_gradients(tensor)
    try:
        yield
    finally:
        for table, name, tensor, values in saved:
            table[name] = tensor
            if tensor.shape != values.shape:
                tensor.data = values
            elif not equal_values(tensor, values):
                with torch.no_grad():
                    tensor.copy_(values)


def equal_values(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have equal shapes, types and entries; nan equals nan."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.layout != torch.strided:  # torch.equal does not compare sparse tensors
        first, second = first.to_dense(), second.to_dense()
    return torch.equal(first, second) or bool(((first == second) | ((first != first) & (second != second))).all())
