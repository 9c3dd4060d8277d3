"""Load tensors from third-party files without executing code from these files.

A safetensors file contains no code, and a .pt or .pth file is read without running its pickle. The tensors are loaded into a setup
only if all of them fit. Otherwise one error lists every problem.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from fa_registry import process_ownership
from fa_registry.errors import InvalidFields, join_names, shortened
from fa_registry.safe_files import UnreadableFile, check_file, open_zip, resolve_user_path
from fa_registry.training.checkpoint import READING_FAILS, check_header
from fa_registry.training.measuring import NOT_GIVEN
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.weight_names import find_weights, without_wrappers

SAFETENSORS = ".safetensors"
SUFFIXES = (SAFETENSORS, ".pt", ".pth")
MOST_BYTES = 2**30  # limit for one file, both packed and unpacked
CHUNK, OVERLAP = 2**20, 100  # bytes of a pickle that are searched at once, and the bytes that two searches share
MOST_ENTRIES = 200_000  # limit for a .pt file, which is a zip archive with one entry per tensor
# Names in a pickle that torch accepts, although each lets a file of a few kB allocate gigabytes of memory.
# Files of dense tensors, numbers and texts do not contain them.
ENLARGING = re.compile(
    rb"(?:_codecs\n(encode)|\n(bytearray)|torch\._utils\n(_rebuild_(?:device|sparse|nested|qtensor)\w{,40}))"
)
ZIP = b"PK\x03\x04"  # the first bytes of the archives that torch.save has written since 2020


def read_foreign(path: Path, limit: int = MOST_BYTES) -> Any:
    """Read tensors from a third-party file onto the CPU.

    Args:
        path: a .safetensors, .pt or .pth file.
        limit: maximum size of the file in bytes, both packed and unpacked.

    Returns:
        A mapping from names to tensors, or the plain values of a .pt file.

    Raises:
        ValueError: if the file is unreadable, has another format, or is larger than `limit`.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path.name}: expected a file ending in {', '.join(SUFFIXES)}")
    if not os.path.exists(path):
        raise ValueError(f"{path}: no such file")
    try:
        check_file(resolve_user_path(path), limit)
    except UnreadableFile as error:
        raise ValueError(f"{path.name}: {error.reason}") from error
    if path.suffix != SAFETENSORS:
        return _read_torch(path, limit)
    try:
        with path.open("rb") as stream:
            check_header(stream.read(8))
        return load_file(path)
    except READING_FAILS as error:
        raise ValueError(f"{path.name}: not a readable safetensors file: {shortened(error)}") from error


def _read_torch(path: Path, limit: int) -> Any:
    """Load a .pt file. With `weights_only`, torch refuses files that would run code."""
    try:
        # torch and zipfile warn about files that they then refuse
        with (
            warnings.catch_warnings(action="ignore", category=UserWarning),
            process_ownership.temp_dir("fa_registry-pt-") as folder,
        ):
            checked_path = _checked(resolve_user_path(path), folder / "checked.pt", limit)
            return torch.load(checked_path, map_location="cpu", weights_only=True)
    except _Refused as error:
        raise ValueError(f"{path.name}: {error}") from error
    except OSError as error:
        raise ValueError(f"{path.name}: cannot be read: {error}") from error
    except Exception as error:  # a broken byte makes torch raise any error: KeyError, EOFError, RuntimeError, …
        if "weights" not in str(error).lower():
            raise ValueError(f"{path.name}: not a file that torch.save wrote ({type(error).__name__})") from error
        match = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(f"{path.name}: {_more_than_tensors(match[1] if match else '')}") from error


class _Refused(Exception):
    """Error for a .pt file that is refused before torch reads it. The message gives the reason."""


def _more_than_tensors(name: str) -> str:
    return (
        "the file contains more than plain tensors"
        + (f" (the name {shortened(name)} in its pickle)" if name else "")
        + "; reading a pickle can run any program, so the file is refused; save only the tensors with "
        "torch.save(model.state_dict(), …) or as safetensors"
    )


def _checked(path: Path, copy: Path, limit: int) -> Path:
    """Return the path of a file that torch can read in at most `limit` bytes of memory.

    The entries of a zip archive are rewritten to `copy`, because torch's zip reader may find different entries in the original
    bytes.
    """
    with path.open("rb") as stream:
        if stream.read(len(ZIP)) != ZIP:
            stream.seek(0)
            _check_names(stream)
            return path
    with open_zip(path, limit) as archive, zipfile.ZipFile(copy, "w") as copy_archive:
        entries = archive.infolist()
        total = sum(entry.file_size for entry in entries)
        if total > limit or len(entries) > MOST_ENTRIES:
            raise _Refused(
                f"expected at most {limit:,} bytes in {MOST_ENTRIES:,} tensors, found a file of "
                f"{path.stat().st_size:,} bytes that unpacks to {total:,} bytes in {len(entries):,} entries"
            )
        for entry in entries:
            if entry.filename.endswith(".pkl"):
                with archive.open(entry) as source:
                    _check_names(source)
            with archive.open(entry) as source, copy_archive.open(entry.filename, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
    return copy


def _check_names(stream: IO[bytes]) -> None:
    """Raise _Refused if a pickle names a function that builds large values from few bytes."""
    last = b""
    while chunk := stream.read(CHUNK):
        if match := ENLARGING.search(last + chunk):
            raise _Refused(_more_than_tensors(next(filter(None, match.groups())).decode()))
        last = chunk[-OVERLAP:]


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
