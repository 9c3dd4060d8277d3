"""Find the weights of a network in the content of a checkpoint file.

Training scripts and wrappers store the same tensors under different names: below keys such as `state_dict`, `net` or `ema`, and
with prefixes such as `module.`, `_orig_mod.` or `model.`, in any order. The names of the network's tensors identify them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fa_registry.errors import join_names

# parts that wrappers insert anywhere in a name: parallel training, torch.compile, sharding, recomputation
WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
COUNTERS = (
    "n_averaged",
    "num_updates",
    "initted",
    "step",
    "decay",
)  # numbers that averages of weights add to a state dict
DEEPEST = 4  # nested mappings that are searched
CURE = "save only the network's own tensors, with torch.save(network.state_dict(), FILE)"


@dataclass(frozen=True)
class WeightSet:
    """One set of tensors in a file that has all names of the network.

    Attributes:
        keys: keys of the nested mappings that lead to the set.
        prefix: text in front of the network's names, after the parts of WRAPPERS were removed.
        tensors: tensors of the mapping by name, without the parts of WRAPPERS.
    """

    keys: tuple[str, ...]
    prefix: str
    tensors: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Keys and prefix, as text for messages."""
        return " → ".join([*self.keys, *([f"{self.prefix}…"] if self.prefix else [])]) or "no key"


def find_weights(content: Any, expected: Collection[str]) -> dict[str, Any]:
    """Return the network's tensors in the content of a file, by the network's names.

    If no set in the file is complete, the result is the mapping with most of the names, so the caller can list the differences.

    Args:
        content: content of the file, as `read_foreign` returns it.
        expected: names of the network's parameters and buffers.

    Raises:
        ValueError: if the file contains no named tensors, several complete sets, or tensors outside of the set.
    """
    mappings = [(keys, without_wrappers(mapping, expected)) for keys, mapping in _mappings(content)]
    if not mappings:
        raise ValueError(f"expected a mapping from names to tensors, found a {type(content).__name__}; {CURE}")
    sets = [
        WeightSet(keys, prefix, tensors)
        for keys, tensors in mappings
        for prefix in _prefixes(tensors, expected)
        if all(prefix + name in tensors for name in expected)
    ]
    if len(sets) > 1:
        places = join_names([found.place for found in sets])
        raise ValueError(f"expected one set of tensors, found several ({places}); save only the set to load")
    return _inside(sets[0]) if sets else _most_similar([tensors for _, tensors in mappings], expected)


def _mappings(content: Any) -> Iterator[tuple[tuple[str, ...], Mapping[Any, Any]]]:
    """Yield every nested mapping that contains a tensor, with its keys."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), content)]
    visited: set[int] = set()
    while waiting:
        keys, value = waiting.pop(0)
        if not isinstance(value, Mapping) or id(value) in visited:
            continue
        visited.add(id(value))
        if any(isinstance(entry, Tensor) for entry in value.values()):
            yield keys, value
        if len(keys) < DEEPEST:
            waiting += [((*keys, str(key)), entry) for key, entry in value.items() if isinstance(entry, Mapping)]


def without_wrappers(mapping: Mapping[Any, Any], expected: Collection[str]) -> dict[str, Any]:
    """Remove the parts of wrappers from names, unless the network has such parts."""
    removed = WRAPPERS.difference(part for name in expected for part in name.split("."))
    names = {name: ".".join(part for part in str(name).split(".") if part not in removed) for name in mapping}
    if len(set(names.values())) < len(names):  # two tensors would get one name
        return {str(name): value for name, value in mapping.items()}
    return {names[name]: value for name, value in mapping.items()}


def _prefixes(tensors: Mapping[str, Any], expected: Collection[str]) -> Iterator[str]:
    """Yield the prefixes with which the mapping contains the first expected name."""
    first = next(iter(expected), "")
    for name in tensors:
        prefix = name.removesuffix(first)
        if name.endswith(first) and (not prefix or prefix.endswith(".")):
            yield prefix


def _inside(found: WeightSet) -> dict[str, Any]:
    """Return the tensors below the prefix of a set, without counters.

    Raises:
        ValueError: if the mapping contains other tensors too. They could be layers that the built-in network does not have.
    """
    others = [name for name in found.tensors if not name.startswith(found.prefix) and not _is_counter(name)]
    if others:
        raise ValueError(
            f"expected only tensors with the prefix {found.prefix}, found also {join_names(others)}; {CURE}"
        )
    inside = {name: value for name, value in found.tensors.items() if name.startswith(found.prefix)}
    return {name.removeprefix(found.prefix): value for name, value in inside.items() if not _is_counter(name)}


def _is_counter(name: str) -> bool:
    return name.rpartition(".")[2] in COUNTERS


def _most_similar(mappings: Collection[Mapping[str, Any]], expected: Collection[str]) -> dict[str, Any]:
    """Return the mapping with most of the expected names.

    The first part of most names is removed, if more names are then expected.
    """
    best: dict[str, Any] = {}
    for tensors in mappings:
        parts = Counter(name.partition(".")[0] for name in tensors)
        for prefix in ("", *(f"{part}." for part, _ in parts.most_common(1))):
            cut = {name.removeprefix(prefix): value for name, value in tensors.items()}
            if not best or len(cut.keys() & set(expected)) > len(best.keys() & set(expected)):
                best = cut
    return best
