"""A network that gives values but no gradients, for credit rules whose card lacks `needs_autograd`.

It protects against an undeclared call of autograd. It is no sandbox: Python code can reach the network in other ways, and can
build a second network from the values. fa_registry.training.backprop_check measures the credits of such code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.errors import PluginError

# Methods of nn.Module that only read. All others change the module, and are refused.
READERS = (
    *("get_submodule", "get_parameter", "get_buffer", "parameters", "named_parameters", "buffers", "named_buffers"),
    *("modules", "named_modules", "children", "named_children", "state_dict", "extra_repr"),
)


class DetachedModule:
    """A read-only view of a module, whose tensors are copies and whose results have no autograd graph.

    A call in grad mode raises PluginError. So does writing an attribute, and a method of nn.Module that changes the module.
    """

    def __init__(self, module: nn.Module, method: str):
        """Wrap `module` of the training method called `method`."""
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_method", method)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._values(self._module, arguments, named)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if name in READERS:
            return lambda *arguments, **named: self._read(value(*arguments, **named))
        if isinstance(value, (Tensor, nn.Module)):
            return self._read(value)
        if not callable(value):
            return value
        if hasattr(nn.Module, name) and name != "forward":
            raise PluginError(f"{self._subject} is read-only: it has no {name!r}")
        return lambda *arguments, **named: self._values(value, arguments, named)

    def __setattr__(self, name: str, value: Any) -> None:
        raise PluginError(f"{self._subject} is read-only: its attribute {name!r} cannot be set")

    def __iter__(self) -> Iterator[Any]:
        return map(self._read, iter(self._module))

    def __len__(self) -> int:
        return len(self._module)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._module[index])

    @property
    def _subject(self) -> str:
        return f"method {self._method!r}: inputs.network"

    def _values(self, compute: Callable, arguments: tuple, named: Mapping[str, Any]) -> Any:
        """Return the result of `compute` for detached arguments, without grad mode."""
        if torch.is_grad_enabled():
            raise PluginError(
                f"{self._subject} was called in grad mode, and the method's card does not declare autograd; "
                "a credit rule that differentiates through the network sets needs_autograd=True on its card"
            )
        given = {name: _detached(value) for name, value in named.items()}
        return compute(*map(_detached, arguments), **given)

    def _read(self, value: Any) -> Any:
        """Return a module as a view and a tensor as a copy, also inside the result of a reading method."""
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
    """Detach a tensor from backward and forward graphs; return anything else as it is."""
    return value.detach() if isinstance(value, Tensor) else value
