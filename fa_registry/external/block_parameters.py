"""Find the parameters that a model's blocks use in a forward pass.

The parameters of the blocks' modules are an incomplete list, because a model may call `F.linear(h, self.W)` on a bare parameter
or pass a weight to a custom autograd Function. Therefore the code observes every operation of a forward pass, below autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fa_registry.errors import UsageError, unknown_name_text
from fa_registry.training.user_model import state_unchanged

NAMED_CALL = "#"  # `layer#2` is the second call of `layer` in a forward pass


class BlockParameters(NamedTuple):
    """Names of the parameters that a forward pass reads between two sites.

    `names` has the order of `named_parameters()`. `shared` contains the names that the forward pass also reads before or after
    these sites.
    """

    names: tuple[str, ...]
    shared: tuple[str, ...]


def parameters_between(call: Callable[[], Any], model: nn.Module, first: str, last: str) -> BlockParameters:
    """Find the parameters that a forward pass reads between two modules.

    The interval begins when the pass enters `first` and ends when the pass leaves `last`. A parameter is identified by its memory.
    Therefore views, detached aliases and reads inside custom autograd Functions also count. If a tensor is computed from parameters
    only (a cast, a mask, weight normalisation), each use of the tensor counts as a use of these parameters. During the call, the
    model is in eval mode. Gradients, modes, buffers and random generators are restored afterwards.

    Args:
        call: function without arguments that makes one forward pass of `model`. Gradients are enabled, because a model may call
            `retain_grad` or register a hook on its states.
        model: module that contains the sites and the parameters.
        first: path of a module. `layer#2` means the second time that the pass calls `layer`.
        last: path of a module in the same form as `first`, possibly the same module.

    Returns:
        The names of the parameters.

    Raises:
        UsageError: if a site is unknown or the pass never calls it; if a site is called more than once and its name has no `#k`;
            if `last` ends before `first` begins; or if the pass reads no parameter in the interval.
    """
    begin, end = _Site.named(model, first), _Site.named(model, last)
    reads = _ParameterReads(model)
    is_reversed = False

    def enter(module: nn.Module, args: Any) -> None:
        begin.calls += 1
        reads.is_between |= begin.calls == begin.number

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal is_reversed
        end.calls += 1
        if end.calls == end.number:
            is_reversed = not reads.is_between
            reads.is_between = False

    with state_unchanged(model), ExitStack() as hooks:
        # `enter` is the first of all hooks, because a hook can compute the weight (`spectral_norm`); `leave` is the last.
        hooks.callback(begin.module.register_forward_pre_hook(enter, prepend=True).remove)
        hooks.callback(end.module.register_forward_hook(leave).remove)
        with reads:
            call()
    for site in (begin, end):
        site.check_calls()
    if is_reversed:
        raise UsageError(
            f"sites: expected {first} to begin before {last} ends, but {last} ends first; exchange the two sites"
        )
    order = [name for name, _ in model.named_parameters()]
    names = tuple(name for name in order if name in reads.between)
    if not names:
        raise UsageError(
            f"sites: expected the model to read parameters between the entry of {first} and the end of {last}, found none; "
            "choose two sites with blocks between them, or give the names of blocks or parameters instead of sites"
        )
    return BlockParameters(names, tuple(name for name in names if name in reads.elsewhere))


@dataclass
class _Site:
    """One end of the interval: call number `number` of a module."""

    name: str
    module: nn.Module
    number: int
    calls: int = 0

    @classmethod
    def named(cls, model: nn.Module, name: str) -> _Site:
        path, mark, number = name.partition(NAMED_CALL)
        modules = dict(model.named_modules())
        if path not in modules:
            raise UsageError(f"sites: {unknown_name_text('module', path, filter(None, modules))}")
        if mark and not (number.isdecimal() and int(number)):
            raise UsageError(f"sites: {name}: expected the number of a call after #, as in {path}#2")
        return cls(name, modules[path], int(number) if mark else 1)

    def check_calls(self) -> None:
        """Raise UsageError if the pass did not make the call, or if the name fits several calls."""
        path, mark, _ = self.name.partition(NAMED_CALL)
        if self.calls < self.number:
            found_text = f"found {self.calls}" if self.calls else "found none"
            raise UsageError(
                f"sites: {self.name}: expected {self.number} or more calls of {path} in a forward pass, {found_text}"
            )
        if self.calls > 1 and not mark:
            raise UsageError(
                f"sites: {self.name}: expected one call in a forward pass, found {self.calls}; "
                f"choose a call from {path}#1 to {path}#{self.calls}"
            )


class _ParameterReads(TorchDispatchMode):
    """Collector of the parameters that a forward pass reads inside and outside the interval."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.is_between = False
        self.between: set[str] = set()
        self.elsewhere: set[str] = set()
        # Several parameters may share one storage, so each is stored with its range of bytes.
        self._ranges: dict[int, list[tuple[float, float, frozenset[str]]]] = {}
        # Buffers, and tensors computed from parameters and buffers alone. The tensors are stored, because another tensor would
        # soon reuse the address of a freed storage.
        self._computed: dict[int, tuple[frozenset[str], Tensor]] = {}
        self._kept = dict(model.named_parameters())
        for name, weight in self._kept.items():
            storage, start, stop = _bytes_of(weight)
            self._ranges.setdefault(storage, []).append((start, stop, frozenset([name])))
        for buffer in model.buffers():
            storage, _, _ = _bytes_of(buffer)
            if storage not in self._ranges:
                self._computed[storage] = (frozenset(), buffer)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [self._names(tensor) for tensor in _tensors((args, kwargs))]
        names = frozenset().union(*filter(None, inputs))
        if not func.is_view:  # creating a view reads nothing; an operation with the view reads the weight
            (self.between if self.is_between else self.elsewhere).update(names)
        for tensor in _tensors(result):
            storage, _, _ = _bytes_of(tensor)
            if None in inputs:
                self._computed.pop(storage, None)  # an in-place operation has written a state into it
            elif inputs and storage not in self._ranges:
                self._computed[storage] = (names, tensor)
        return result

    def _names(self, tensor: Tensor) -> frozenset[str] | None:
        """Return the parameters that determine this tensor, or None if it depends on other tensors too."""
        storage, start, stop = _bytes_of(tensor)
        if storage in self._computed:
            return self._computed[storage][0]
        ranges = self._ranges.get(storage)
        if ranges is None:
            return None
        return frozenset().union(*(names for begin, end, names in ranges if begin < stop and start < end))


def _tensors(values: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def _bytes_of(tensor: Tensor) -> tuple[int, float, float]:
    """Return a tensor's storage and byte range, or its `id` and an unlimited range if it is sparse."""
    try:
        storage = tensor.untyped_storage()._cdata
        extent = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        start = tensor.storage_offset()
    except (RuntimeError, NotImplementedError, ValueError):
        return id(tensor), 0, inf
    width = tensor.element_size()
    return storage, start * width, (start + extent if tensor.numel() else start) * width
