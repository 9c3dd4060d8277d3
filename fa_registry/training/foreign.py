"""Tensors from files that somebody else wrote: safetensors, or .pt/.pth read as plain tensors. No pickle is ever run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

SAFETENSORS = ".safetensors"
SUFFIXES = (SAFETENSORS, ".pt", ".pth")
NESTS = ("state_dict", "model_state_dict", "model")  # where training scripts put the weights inside a checkpoint
WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before every name


def read_foreign(path: Path) -> Any:
    """What the file holds, on the CPU: names to tensors, or whatever plain values a .pt has. ValueError says why not."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path.name}: expected a file ending in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if path.suffix != SAFETENSORS:
        return _read_torch(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path.name}: not a readable safetensors file: {error}") from error


def _read_torch(path: Path) -> Any:
    """weights_only: torch then refuses every file that would have to run code of its own choosing to be read."""
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of torch, on files it then refuses
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{path.name}: cannot be read: {error}") from error
    except Exception as error:  # torch raises whatever a broken byte leads to: KeyError, EOFError, RuntimeError, …
        if "weights" not in str(error).lower():
            raise ValueError(f"{path.name}: not a file that torch.save wrote ({type(error).__name__})") from error
        named = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(
            f"{path.name}: needs more than plain tensors to be read"
            + (f" (it names {named[1]})" if named else "")
            + "; a pickle may run any program while it is read, so it is not: save the tensors alone, "
            "torch.save(model.state_dict(), …) or safetensors"
        ) from error


def named_tensors(held: Any, nests: Sequence[str] = NESTS) -> dict[str, Any]:
    """The mapping of names to tensors that `held` is or holds under one of `nests`, without wrappers' prefixes."""
    inside = unnested(held, nests)
    if not isinstance(inside, Mapping):
        raise ValueError(f"expected tensors by name, found a {type(inside).__name__}")
    named = {str(name): value for name, value in inside.items()}
    for wrapper in WRAPPERS:
        if named and all(name.startswith(wrapper) for name in named):
            named = {name.removeprefix(wrapper): value for name, value in named.items()}
    return named


def unnested(held: Any, nests: Sequence[str]) -> Any:
    """What stands under the one name of `nests` that `held` has, or `held` itself. ValueError when it has two."""
    if not isinstance(held, Mapping):
        return held
    inner = [name for name in nests if isinstance(held.get(name), (Mapping, list, tuple))]
    if len(inner) > 1:
        raise ValueError(f"holds several sets of tensors ({', '.join(inner)}): save the one that is meant alone")
    return held[inner[0]] if inner else held


def fitted(expected: Mapping[str, Tensor], given: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[str]]:
    """`given` in the types of `expected`, and every misfit: tensors missing, unexpected, of another shape or type."""
    missing = [name for name in expected if name not in given]
    unexpected = [name for name in given if name not in expected]
    problems = [
        f"{word}: {', '.join(names)}" for word, names in (("missing", missing), ("unexpected", unexpected)) if names
    ]
    tensors = {}
    for name in expected:
        if name in given:
            try:
                tensors[name] = _fitting(expected[name], given[name])
            except ValueError as error:
                problems.append(f"{name}: {error}")
    return tensors, problems


def _fitting(expected: Tensor, given: Any) -> Tensor:
    if not isinstance(given, Tensor):
        raise ValueError(f"expected a tensor, found a {type(given).__name__}")
    if given.layout != torch.strided or given.is_quantized or given.is_meta:
        raise ValueError("expected a dense tensor with its numbers, found a sparse, quantised or empty one")
    if given.shape != expected.shape:
        turned = given.dim() == 2 and given.T.shape == expected.shape
        hint = "; its transpose would fit" if turned else ""
        raise ValueError(f"expected shape {tuple(expected.shape)}, found {tuple(given.shape)}{hint}")
    if given.is_floating_point() != expected.is_floating_point() or given.is_complex():
        raise ValueError(f"expected {expected.dtype}, found {given.dtype}")
    converted = given.detach().to(expected.dtype)
    if not torch.equal(converted.double().nan_to_num(), given.detach().double().nan_to_num()):
        # rounded, they would be other weights than those that were trained
        raise ValueError(
            f"cannot be held as {expected.dtype} without rounding, found {given.dtype}: convert it yourself"
        )
    return converted
