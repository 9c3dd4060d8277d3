"""A network without gradients, for methods whose card does not declare `needs_autograd`.

This network raises an error if the method calls autograd, but it is not a sandbox. Python code can reach the original network in
other ways, or build a second network from the values. fa_registry.training.backprop_check measures the credits of such code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.errors import PluginError

# Methods of nn.Module that only read. All other methods change the module, so the view refuses them.
READERS = (
    *("get_submodule", "get_parameter", "get_buffer", "parameters", "named_parameters", "buffers", "named_buffers"),
    *("modules", "named_modules", "children", "named_children", "state_dict", "extra_repr"),
)


class DetachedModule:
    """Read-only view of a module. Its tensors are copies without an autograd graph.

    The view raises PluginError in three cases: a call in grad mode, an assignment to an attribute, and a call of a method of
    nn.Module that changes the module. Calls return tensors without an autograd graph.
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
