"""Frozen control for user-supplied training loops: a run with untrained blocks.

Rule D3 compares the accuracy of a method with the accuracy of this control.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_map_only

from fa_registry.architectures import AdaptedNetwork, unwrapped
from fa_registry.architectures._site_names import advice
from fa_registry.errors import UsageError, join_names
from fa_registry.external.block_parameters import parameters_between
from fa_registry.network_mode import gradients_enabled, usable_for_gradients
from fa_registry.output_streams import encodable
from fa_registry.text_safety import escape_to_one_line
from fa_registry.training.checkpoint import content_digest

LOG = logging.getLogger(__name__)
# parts of the messages of torch and Python if a loop uses a gradient that frozen weights do not have
NO_GRADIENT = ("does not require grad", "NoneType", "empty parameter list")
DIGITS = 16  # of a digest of an epoch's weights
SKIP = "let the loop skip a frozen block: `if not any(weight.requires_grad for weight in block.parameters()): continue`"
# model → frozen name → digest of its weights
_FROZEN: WeakKeyDictionary[nn.Module, dict[str, str]] = WeakKeyDictionary()


@contextmanager
def frozen_control(
    model: nn.Module, blocks: Sequence[str] = (), *, sites: Sequence[str] = (), x: Any = None
) -> Iterator[nn.Module]:
    """Context manager: freeze the model's blocks, and train all other parameters.

    If `track` records a run of the model inside this context, the run is the frozen control of the method's runs with the same
    seed, data set and epochs. The frozen weights have requires_grad False. A loop may call `h.backward(credit)` on a layer's
    output. Therefore the output of a layer with frozen weights still requires a gradient. The names of the frozen modules or
    parameters are printed in one line and recorded with the run. On exit, the weights are unfrozen.

    Args:
        model: the model that is trained, or the result of `adapt` for it.
        blocks: paths of modules or names of parameters. If `blocks` is given, `sites` is ignored. The default is the modules in
            `.blocks`.
        sites: positions in the forward pass, as for `adapt`. The default is the sites of an adapted model. All parameters that the
            pass reads between the entry of the first site and the end of the last site are frozen.
        x: a batch for one call of the model, which is required if `sites` is given. A mapping is passed as keyword arguments.

    Raises:
        UsageError: on entry, if a name is unknown, no parameter is found, or the model is already frozen. On exit, and after the
            first epoch of `track`, if any bit of a frozen weight has changed. A frozen weight changes if the loop writes .grad or
            weights directly, or if its optimiser applies weight decay to weights without a gradient.

    Source: arXiv 2606.21126, D3.
    """
    inner = _inner(model)
    if inner in _FROZEN:
        raise UsageError(
            "frozen_control: expected a model that is not frozen, found a model that another frozen_control has frozen"
        )
    with gradients_enabled():
        names = blocks_to_freeze(model, blocks, sites, tree_map_only(Tensor, usable_for_gradients, x))
    parts = _parts(model)
    weights = {id(weight): weight for name in names for weight in parts[name].values() if weight.requires_grad}
    with ExitStack() as cleanup:
        for weight in weights.values():
            cleanup.callback(weight.requires_grad_, weight.requires_grad)
            weight.requires_grad_(False)
        for module in inner.modules():
            if any(id(weight) in weights for weight in module.parameters(recurse=False)):
                cleanup.callback(module.register_forward_hook(_requiring_gradient).remove)
        _FROZEN[inner] = {name: content_digest(parts[name]) for name in names}
        cleanup.callback(_FROZEN.pop, inner)
        tensors = "1 parameter" if len(weights) == 1 else f"{len(weights)} parameters"
        print(encodable(escape_to_one_line(f"frozen: {tensors}: {join_names(names)}"), sys.stdout))
        try:
            yield model
        except (RuntimeError, TypeError, AttributeError, ValueError) as error:
            if any(text in str(error) for text in NO_GRADIENT):
                error.add_note(f"frozen_control: frozen weights have no gradient: {', '.join(names)}; {SKIP}")
            raise
        check_frozen(model)


def check_frozen(model: nn.Module) -> None:
    """Raise UsageError if a weight that `frozen_control` froze has changed."""
    digests, parts = _FROZEN.get(_inner(model), {}), _parts(model)
    changed = [name for name in digests if name not in parts or content_digest(parts[name]) != digests[name]]
    if changed:
        raise UsageError(
            f"frozen_control: {', '.join(changed)} changed although frozen, because the training loop writes .grad or weights; "
            f"{SKIP}. The trained model is not a valid control"
        )


def blocks_to_freeze(
    model: nn.Module, blocks: Sequence[str] = (), sites: Sequence[str] = (), x: Any = None
) -> tuple[str, ...]:
    """Return the modules and parameters that `frozen_control` would freeze with the same arguments."""
    for argument, given in (("blocks", blocks), ("sites", sites)):
        is_list = isinstance(given, Sequence) and not isinstance(given, str)
        if not is_list or not all(isinstance(name, str) for name in given):
            problem = f"expected a list of names, found {given!r:.80}"
            raise UsageError(f"frozen_control: {argument}: {problem}; {advice(_inner(model), argument)}")
    if isinstance(model, AdaptedNetwork) and x is not None:
        sites = tuple(sites) or model.sites
    if sites and not blocks:
        if x is None:
            raise UsageError(
                "frozen_control: x: expected a batch for one call of the model, because sites= was given; found none"
            )
        runner, _ = unwrapped(model)  # a compiled module runs no hooks
        keywords = isinstance(x, Mapping) and not isinstance(runner, AdaptedNetwork)
        forward = partial(runner, **x) if keywords else partial(runner, x)
        block_parameters = parameters_between(forward, _inner(model), sites[0], sites[-1])
        if block_parameters.shared:
            LOG.warning(
                "frozen_control: the model also uses these frozen parameters outside of the blocks: %s",
                ", ".join(block_parameters.shared),
            )
        return block_parameters.names
    names = tuple(blocks) or tuple(f"blocks.{index}" for index in range(len(getattr(model, "blocks", ()))))
    parts = _parts(model)
    unknown = [name for name in names if name not in parts]
    if unknown or not names:
        found_text = ", ".join(unknown) or "none, and the model has no .blocks"
        raise UsageError(
            f"frozen_control: expected names of the model's blocks, found {found_text}; {advice(_inner(model), 'blocks')}"
        )
    return names


def frozen_blocks(model: nn.Module) -> tuple[str, ...]:
    """Return the frozen modules or parameters of the model. Outside of `frozen_control`, there are none."""
    return tuple(_FROZEN.get(_inner(model), ()))


def trained_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters and buffers that a training loop of the model changes.

    Frozen parameters and the statistics of a BatchNorm are left out. If all parameters are frozen, there is no such name.
    """
    inner, parts = _inner(model), _parts(model)
    frozen = {id(weight) for name in frozen_blocks(model) for weight in parts[name].values()}
    learning = [name for name, weight in inner.named_parameters() if id(weight) not in frozen]
    if frozen and not learning:
        return ()
    norms = (module for module in inner.modules() if isinstance(module, _NormBase))
    statistics = {id(buffer) for norm in norms for buffer in norm.buffers()}
    return (*learning, *(name for name, buffer in inner.named_buffers() if id(buffer) not in statistics))


def tensors_digest_of(model: nn.Module, names: Collection[str]) -> str:
    """Return the first digits of the SHA-256 of those parameters and buffers of the model that are named."""
    inner = _inner(model)
    tensors = {**dict(inner.named_parameters()), **dict(inner.named_buffers())}
    return content_digest({name: tensors[name].detach() for name in names if name in tensors})[:DIGITS]


def _inner(model: nn.Module) -> nn.Module:
    model, _ = unwrapped(model)
    return model.model if isinstance(model, AdaptedNetwork) else model


def _parts(model: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Return name → weights, for the modules and parameters of the model.

    If a model is wrapped, each part has two names: its name in the inner model and its name in the wrapper.
    """
    parts: dict[str, dict[str, Tensor]] = {}
    for outer in dict.fromkeys((_inner(model), model)):
        parts |= {name: {name: weight} for name, weight in outer.named_parameters(remove_duplicate=False)}
        parts |= {name: dict(module.named_parameters()) for name, module in outer.named_modules(remove_duplicate=False)}
    return parts


def _requiring_gradient(module: nn.Module, args: Any, output: Any) -> Any:
    """Forward hook of a frozen layer: make the output require a gradient."""
    if not torch.is_grad_enabled():
        return output

    def with_graph(value: Tensor) -> Tensor:
        if value.requires_grad or not value.is_floating_point():
            return value
        return value.detach().requires_grad_().clone()  # a leaf does not allow in-place operations

    return tree_map_only(Tensor, with_graph, output)
