"""frozen_control: the control that D3 asks for, inside somebody else's training function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn

from fa_registry.errors import UsageError
from fa_registry.training.checkpoint import content_digest

_FROZEN: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()


@contextmanager
def frozen_control(model: nn.Module, blocks: Sequence[str] = ()) -> Iterator[nn.Module]:
    """Inside, the weights of these blocks (module paths; default: `.blocks`) take no gradient; everything else trains.

    A run that `track` makes of the model inside is the frozen control of the method's runs with the same seed, data set and
    epochs. Afterwards the blocks learn again. Raises UsageError for names that are none, and at the end where a frozen block is
    not as it was, bit for bit: a loop that writes .grad itself, or an optimiser that decays weights without a gradient, trained it.
    Source: arXiv 2606.21126, D3.
    """
    names = tuple(blocks) or tuple(f"blocks.{index}" for index in range(len(getattr(model, "blocks", ()))))
    known = dict(model.named_modules())
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(
            f"frozen_control: expected names of the model's blocks, found {', '.join(unknown) or 'none and no .blocks'}; "
            f"known: {', '.join(name for name in known if name)}"
        )
    weights = {id(weight): weight for name in names for weight in known[name].parameters() if weight.requires_grad}
    before = {name: _content(known[name]) for name in names}
    for weight in weights.values():
        weight.requires_grad_(False)
    _FROZEN[model] = names
    try:
        yield model
    finally:
        del _FROZEN[model]
        for weight in weights.values():
            weight.requires_grad_(True)
    changed = [name for name in names if _content(known[name]) != before[name]]
    if changed:
        raise UsageError(
            f"frozen_control: {', '.join(changed)} changed although frozen: the loop writes .grad or weights itself; "
            "leave out weights with requires_grad=False. What was trained is no control"
        )


def frozen_blocks(model: nn.Module) -> tuple[str, ...]:
    """Which blocks of the model are frozen by `frozen_control` now."""
    return _FROZEN.get(model, ())


def _content(module: nn.Module) -> str:
    """Weights alone: the running statistics of a batch norm follow the stream, frozen or not."""
    return content_digest({name: weight.detach() for name, weight in module.named_parameters()})
