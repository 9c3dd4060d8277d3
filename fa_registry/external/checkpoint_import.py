"""Load tensors from files of other programs without executing code from these files.

A safetensors file contains no code, and torch reads a .pt or .pth file with `weights_only`. The tensors are loaded into a setup
only if all of them fit. Otherwise one error lists every problem.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from fa_registry.errors import InvalidFields, join_names
from fa_registry.external.weight_names import find_weights, without_wrappers
from fa_registry.training.measuring import NOT_GIVEN
from fa_registry.training.run_setup import RunSetup

SAFETENSORS = ".safetensors"
SUFFIXES = (SAFETENSORS, ".pt", ".pth")


def read_foreign(path: Path) -> Any:
    """Read tensors from a file of the user onto the CPU.

    Args:
        path: a .safetensors, .pt or .pth file.

    Returns:
        A mapping from names to tensors, or the plain values of a .pt file.

    Raises:
        ValueError: if the file does not exist, has another format or contains more than tensors and plain values.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path.name}: expected a file ending in {', '.join(SUFFIXES)}")
    if not os.path.isfile(path):
        raise ValueError(f"{path}: {'is no regular file' if os.path.exists(path) else 'no such file'}")
    try:
        return load_file(path) if path.suffix == SAFETENSORS else _read_torch(path)
    except Exception as error:  # a broken byte makes torch raise any error: KeyError, EOFError, RuntimeError, …
        raise ValueError(
            f"{path.name}: not a file of plain tensors ({type(error).__name__}); save only the tensors as safetensors or "
            "with torch.save(model.state_dict(), …)"
        ) from error


def _read_torch(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        # torch maps the bytes of an entry as they are: it returns wrong numbers for a compressed entry
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise zipfile.BadZipFile("the archive is compressed")
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def unwrap(content: Any, nests: Sequence[str]) -> Any:
    """Return the value of the only key of `nests` that `content` contains.

    Returns:
        The value, or `content` itself if it is not a mapping or contains none of the keys.

    Raises:
        ValueError: if `content` contains several of the keys.
    """
    if not isinstance(content, Mapping):
        return content
    present_names = [name for name in nests if isinstance(content.get(name), (Mapping, list, tuple))]
    if len(present_names) > 1:
        raise ValueError(
            f"expected one set of tensors, found several ({', '.join(present_names)}); save only the set to load"
        )
    return content[present_names[0]] if present_names else content


def match_tensors(expected: Mapping[str, Tensor], candidates: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[str]]:
    """Convert a file's tensors to the setup's types. Return them by name, and a text per difference."""
    missing = [name for name in expected if name not in candidates]
    unexpected = [name for name in candidates if name not in expected]
    problems = [
        f"{label}: {join_names(names)}" for label, names in (("missing", missing), ("unexpected", unexpected)) if names
    ]
    tensors = {}
    for name in expected:
        if name in candidates:
            try:
                tensors[name] = _fitting(expected[name], candidates[name])
            except ValueError as error:
                problems.append(f"{name}: {error}")
    return tensors, problems


def _fitting(expected: Tensor, candidate: Any) -> Tensor:
    if not isinstance(candidate, Tensor):
        raise ValueError(f"expected a tensor, found a {type(candidate).__name__}")
    if candidate.layout != torch.strided or candidate.is_quantized or candidate.is_meta:
        raise ValueError("expected a dense tensor with values, found a sparse, quantised or meta tensor")
    if candidate.shape != expected.shape:
        is_transposed = candidate.dim() == 2 and candidate.T.shape == expected.shape
        hint = "; the transposed tensor would fit" if is_transposed else ""
        raise ValueError(f"expected shape {tuple(expected.shape)}, found {tuple(candidate.shape)}{hint}")
    if candidate.is_floating_point() != expected.is_floating_point() or candidate.is_complex():
        raise ValueError(f"expected {expected.dtype}, found {candidate.dtype}")
    converted = candidate.detach().to(expected.dtype)
    if not torch.equal(converted.double().nan_to_num(), candidate.detach().double().nan_to_num()):
        # rounded weights would not be the trained ones
        raise ValueError(
            f"expected values that {expected.dtype} can store without rounding, found {candidate.dtype}; convert the tensor first"
        )
    return converted


FEEDBACK_NESTS = ("state_dict", "model_state_dict", "model", "feedback", "feedback_state", "B")
OURS = re.compile(r"B_\d+")  # methods.base.FixedMatrices: one matrix per block, so the order identifies the matrices
NUMBERED = re.compile(r"(\D*)(\d+)(\D*)")


def load_foreign_weights(setup: RunSetup, weights: Any, feedback: Any | None) -> str:
    """Load third-party weights and feedback into the setup.

    Args:
        setup: the setup, whose network and feedback state are overwritten.
        weights: content of the weights' file, as `read_foreign` returns it.
        feedback: content of the feedback file, or None if the user gave no such file.

    Returns:
        The reason why `measure` cannot compute the credits. It is empty if `measure` can.

    Raises:
        InvalidFields: if tensors do not fit; the error lists the problems of weights and feedback.
    """
    network = setup.network.state_dict()
    state = setup.feedback.state_dict()
    loaded_weights, problems = _taken("weights", network, lambda: find_weights(weights, network))
    loaded_feedback: dict[str, Tensor] = {}
    if feedback is not None and not state:
        problems.append(f"feedback: expected no file, because the method {setup.spec.method!r} has no feedback state")
    elif feedback is not None:
        loaded_feedback, misfits = _taken("feedback", state, lambda: feedback_tensors(feedback, list(state)))
        problems += misfits
        problems += [
            f"feedback: {name}: expected finite numbers, found inf or nan"
            for name, tensor in loaded_feedback.items()
            if not tensor.isfinite().all()
        ]
    if problems:
        raise InvalidFields("adopt", problems)
    setup.network.load_state_dict(loaded_weights)
    if loaded_feedback:
        setup.feedback.load_state_dict(loaded_feedback)
    return NOT_GIVEN if state and feedback is None else ""


def _taken(
    field: str, expected: Mapping[str, Tensor], read_tensors: Callable[[], Mapping[str, Any]]
) -> tuple[dict[str, Tensor], list[str]]:
    try:
        tensors, problems = match_tensors(expected, read_tensors())
    except ValueError as error:
        tensors, problems = {}, [str(error)]
    return tensors, [f"{field}: {problem}" for problem in problems]


def feedback_tensors(content: Any, names: list[str]) -> dict[str, Any]:
    """Return the feedback tensors of a file under the names of the feedback state.

    Args:
        content: content of the file, usually tensors with the names `names`. If these names are B_01, B_02, …, two other forms are
            allowed: a list B_1..B_L, and tensors whose names contain one running number (`B.0`, `feedback.1`). Numbered tensors
            are assigned in the order of their numbers.
        names: names of the tensors in the method's feedback state.

    Raises:
        ValueError: if the tensors cannot be assigned to `names`.
    """
    inner = unwrap(content, FEEDBACK_NESTS)
    is_numbered = all(OURS.fullmatch(name) for name in names)
    if isinstance(inner, (list, tuple)):
        if not is_numbered:
            raise ValueError(f"expected a mapping from names ({join_names(names)}) to tensors, found a list")
        return _in_order(list(inner), names)
    if not isinstance(inner, Mapping):
        raise ValueError(f"expected a mapping from names to tensors, found a {type(inner).__name__}")
    tensors = without_wrappers(inner, names)
    if not is_numbered or set(tensors) & set(names):
        return tensors
    ordered = _by_number(tensors)
    return tensors if ordered is None else _in_order(ordered, names)


def _in_order(matrices: list[Any], names: list[str]) -> dict[str, Any]:
    if len(matrices) != len(names):
        raise ValueError(f"expected {len(names)} matrices, {names[0]} to {names[-1]}, found {len(matrices)}")
    return dict(zip(names, matrices, strict=True))


def _by_number(tensors: Mapping[str, Any]) -> list[Any] | None:
    """Return the values sorted by the one number in each name, or None if this is impossible."""
    parts = {name: NUMBERED.fullmatch(name) for name in tensors}
    if not parts or not all(parts.values()) or len({part.group(1, 3) for part in parts.values()}) > 1:
        return None
    order = sorted(tensors, key=lambda name: int(parts[name][2]))
    numbers = [int(parts[name][2]) for name in order]
    if numbers[0] not in (0, 1) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise ValueError(f"expected names whose numbers start at 0 or 1 and have no gap, found {join_names(order)}")
    return [tensors[name] for name in order]
