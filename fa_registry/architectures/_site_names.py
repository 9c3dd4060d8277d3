"""Suggested names of sites: the chain of equal modules in a third-party model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from fa_registry.errors import MOST_KNOWN, join_names

MOST_LISTED = 12  # suggested sites that a message lists one by one


def names_argument(names: Sequence[str], argument: str = "sites") -> str:
    """Return source code of an argument, such as `sites=["body.0", "body.1"]`.

    Many numbered names are written as a comprehension.
    """
    parent = names[0].rpartition(".")[0]
    if len(names) > MOST_LISTED and list(names) == [f"{parent}.{index}" for index in range(len(names))]:
        return f'{argument}=[f"{parent}.{{index}}" for index in range({len(names)})]'
    listed = ", ".join(f'"{name}"' for name in names)
    return f"{argument}=[{listed}]"


def advice(model: nn.Module, argument: str = "sites", pointed_at: Sequence[Any] = ()) -> str:
    """Return how to name the blocks of a model: the source code of `argument`, or the known names."""
    if names := suggested_sites(model, pointed_at):
        return f"pass {names_argument(names, argument)}; model.named_modules() has all names"
    known = [name for name, module in model.named_modules() if name and not is_container(module)]
    return f"known: {join_names(known, MOST_KNOWN)}"


def suggested_sites(model: nn.Module, pointed_at: Sequence[Any] = ()) -> list[str]:
    """Return the names of modules that are probably the blocks of a model.

    The list is empty if the model has no chain of equal modules.

    The blocks are the modules of the ModuleList with the most weights. Without a list, they are the longest chain of modules of
    one class, in the outermost part of the model that has a chain. A last module of another shape is the head, and left out.

    Args:
        pointed_at: what the user passed as sites. Modules are returned by their names, and a container by its children.
    """
    names = {module: name for name, module in model.named_modules()}
    modules = [model.get_submodule(site) if site in names.values() else site for site in pointed_at]
    if modules and all(isinstance(module, nn.Module) and module in names for module in modules):
        return [names[part] for module in modules for part in (module.children() if is_container(module) else [module])]
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) > 1]
    chains = [_chain(list(module)) for module in sorted(lists, key=_size, reverse=True)]
    outer = [model]
    while outer and not any(chains):
        chains = sorted((_chain(list(_parts(module))) for module in outer), key=len, reverse=True)
        outer = [part for module in outer for part in _parts(module)]
    return [names[module] for module in next(filter(None, chains), [])]


def is_container(module: nn.Module) -> bool:
    """Return whether a module only contains others and cannot be called, as nn.ModuleList."""
    # the forward of a compiled module is an attribute of the object, not of its class
    return getattr(module.forward, "__func__", None) is nn.Module.forward


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the children of a module; those of an nn.Sequential instead of the nn.Sequential itself."""
    for child in module.children():
        yield from _parts(child) if type(child) is nn.Sequential else [child]


def _chain(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the modules of the most frequent class that has weights, without a head.

    The list is empty if there are fewer than two.
    """
    classes: dict[type, list[nn.Module]] = {}
    for module in modules:
        if any(True for _ in module.parameters()):
            classes.setdefault(type(module), []).append(module)
    chain = max(classes.values(), key=len, default=[])
    has_head = len(chain) > 2 and chain[-1] is modules[-1] and _shapes(chain[-1]) != _shapes(chain[-2])
    chain = chain[:-1] if has_head else chain
    return chain if len(chain) > 1 else []


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(weight.shape) for weight in module.parameters()]


def _size(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
