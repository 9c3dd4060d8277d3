"""The stream of a network: its kind, and its states before a norm that ends a block.

A post-LN block ends with a norm, so the length of its output does not show how far the block has grown the stream. Such a block
names this norm in its attribute `stream`, for example `stream = "norm2"`. The input of the named module is the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fa_registry.errors import InvalidFields
from fa_registry.network_mode import eval_mode
from fa_registry.records import NORMALISED, REPLACED, RESIDUAL


class SiteCalls(Protocol):
    """Network that knows which call of which module computes the state of each site."""

    def site_calls(self) -> Iterable[tuple[int, nn.Module, int, str]]:
        """Return tuples (site, module, number of its call, name of its norm) for the sites 1..L.

        Calls are counted from 1. The name is empty if the module does not name a norm.
        """


def norm_name(module: nn.Module) -> str:
    """Return the name of the norm that a module names in its attribute `stream`, or an empty string."""
    name = getattr(module, "stream", "")
    return name if isinstance(name, str) else ""


@contextmanager
def recorded_streams(network: nn.Module) -> Iterator[dict[int, Tensor]]:
    """Context manager: record the stream before each named norm in the first forward pass.

    The result is a mapping from a site to a copy of the input of its norm. It is empty if no module names a norm.

    Raises:
        InvalidFields: A module names a norm that it does not have.
    """
    streams: dict[int, Tensor] = {}
    recorders: dict[tuple[nn.Module, str], _Recorder] = {}
    for site, module, call, name in network.site_calls() if hasattr(network, "site_calls") else ():
        if name:
            recorders.setdefault((module, name), _Recorder(streams, {})).sites[call] = site
    with ExitStack() as hooks:
        for (module, name), recorder in recorders.items():
            norm = _norm_of(module, name)
            hooks.callback(norm.register_forward_pre_hook(recorder.before_norm, with_kwargs=True).remove)
            hooks.callback(module.register_forward_hook(recorder.after_module).remove)
        yield streams


def _norm_of(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        known = ", ".join(filter(None, dict(module.named_modules()))) or "none"
        problem = f"stream: expected a module of the block {type(module).__name__}, found {name!r}; known: {known}"
        raise InvalidFields("stream", [problem]) from None


class _Recorder:
    """Forward hooks of one module and its norm.

    The mapping `sites` is: number of a call → site.
    """

    def __init__(self, streams: dict[int, Tensor], sites: dict[int, int]):
        self.streams, self.sites, self.calls = streams, sites, 0
        self.latest: Tensor | None = None

    def before_norm(self, norm: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.latest = next(iter((*inputs, *keywords.values()))).detach().clone()

    def after_module(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self.calls += 1
        site = self.sites.get(self.calls)
        if site is not None and self.latest is not None:
            self.streams[site] = self.latest


def stream_of(network: nn.Module, inputs: Tensor) -> str:
    """Return the kind of stream of a network: RESIDUAL, REPLACED or NORMALISED.

    The stream is NORMALISED if a state after a block is the output of a normalisation that the block does not name. The norm of
    such a state does not show the scale of the stream.

    Args:
        network: a network whose forward pass can return the states.
        inputs: a small batch (N, …).
    """
    if not getattr(network, "residual", False):
        return REPLACED
    norms = [module for module in network.modules() if "norm" in type(module).__name__.lower()]
    outputs: list[Tensor] = []
    hooks = [norm.register_forward_hook(lambda *call: outputs.append(call[2])) for norm in norms]
    try:
        with torch.no_grad(), eval_mode(network):
            _, states, *_ = network(inputs, return_hidden=True)
    finally:
        for hook in hooks:
            hook.remove()
    named = {site for site, *_, name in network.site_calls() if name}
    unnamed = [(states[site - 1], states[site]) for site in range(1, len(states)) if site not in named]
    moved = [state for before, state in unnamed if not _is_close(before, state)]
    return NORMALISED if any(_is_close(state, output) for state in moved for output in outputs) else RESIDUAL


def _is_close(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.allclose(first, second, rtol=1e-4, atol=1e-4)
