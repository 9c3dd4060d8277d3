"""Write and read safetensors files whose SHA-256 is recorded.

The files contain no pickle. Each file is written atomically, and it is loaded only if its SHA-256 is the recorded one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_file
from torch import Tensor, nn

from fa_registry import process_ownership
from fa_registry.errors import LONGEST_PROBLEM, IntegrityError, shortened
from fa_registry.jsonio import file_digest
from fa_registry.safe_files import open_file

# Largest file, in bytes, that is read only once, so that the hashed bytes are the loaded bytes. For small files, load_file of
# safetensors 0.8.0 takes twice the time and keeps 2 KiB per file. A larger file is loaded by load_file, which reads the header
# before it allocates memory.
AT_ONCE = 2**26
IN_NUMPY = (torch.float16, torch.float32, torch.float64)  # types of floats that numpy has
MOST_HEADER = 2**24  # bytes of a file's list of tensors: 10,000 blocks need 7 MB, and a million names take 1.3 GB
OF_SYSTEM = re.compile(r"\(os error (\d+)\)")


# Errors from a damaged header, including a type that torch does not have.
READING_FAILS = (SafetensorError, OSError, ValueError, KeyError, MemoryError, RuntimeError)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Write tensors to a safetensors file atomically and return the file's SHA-256.

    Args:
        path: file to write. The function writes a temporary file, calls fsync and renames the temporary file.
        metadata: text entries of the file's header.

    Returns:
        The SHA-256 in hexadecimal.

    Raises:
        OSError: if writing fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # with mkstemp only the owner could read the file
    temporary = path.with_name(f".{path.name}{process_ownership.owner_suffix()}")
    try:
        cpu_tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        storage_counts = Counter(tensor.untyped_storage().data_ptr() for tensor in cpu_tensors.values())
        # shared weights are written once per layer, because the format cannot store a shared tensor
        tied = {
            name: tensor.clone()
            for name, tensor in cpu_tensors.items()
            if storage_counts[tensor.untyped_storage().data_ptr()] > 1
        }
        saved_tensors = {**cpu_tensors, **tied}
        # None, not {}: without tensors, safetensors writes an unreadable header for empty metadata
        save_file(saved_tensors, temporary, dict(metadata) if metadata else None)
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except SafetensorError as error:
        os_error = OF_SYSTEM.search(str(error))  # the end of Rust's text for a system error
        raise OSError(int(os_error[1]), os.strerror(int(os_error[1])), str(path)) if os_error else error from error
    finally:
        temporary.unlink(missing_ok=True)
    return file_digest(path)


def load_tensors(path: Path, expected_digest: str | None = None) -> dict[str, Tensor]:
    """Load the tensors of a safetensors file onto the CPU.

    Args:
        expected_digest: recorded SHA-256 of the file in hexadecimal, or None if no digest is recorded.

    Raises:
        IntegrityError: if the file is missing or unreadable, or if its SHA-256 differs from `expected_digest`.
    """
    if not os.path.lexists(path):
        raise IntegrityError(f"{path.name} is missing")
    with open_file(path) as stream:
        content = stream.read(AT_ONCE + 1)
        is_small = len(content) <= AT_ONCE
        stream.seek(0)
        digest = expected_digest
        if expected_digest is not None:
            whole = hashlib.sha256(content) if is_small else hashlib.file_digest(stream, "sha256")
            digest = whole.hexdigest()
    if digest != expected_digest:
        raise IntegrityError(
            f"{path.name}: expected SHA-256 {expected_digest}, found {digest}; the file was changed after the recording"
        )
    try:
        check_header(content)
        return load(content) if is_small else load_file(path)
    except READING_FAILS as error:
        raise IntegrityError(f"{path.name} is not a readable safetensors file: {shortened(error)}") from error


def check_header(start: bytes) -> None:
    """Raise ValueError if the header of a safetensors file is larger than 2^24 bytes.

    The limit protects memory, because a header of a million tensor names takes 1.3 GB. `start` is at least the first 8 bytes of
    the file, which contain the header's length.
    """
    length = int.from_bytes(start[:8], "little")
    if length > MOST_HEADER:
        raise ValueError(f"expected a header of at most {MOST_HEADER:,} bytes, found {length:,}")


def load_into(module: nn.Module, path: Path, expected_digest: str | None = None) -> None:
    """Load the tensors of a safetensors file into `module`, as `load_tensors` does.

    Raise IntegrityError also if names or shapes differ from those of the module.
    """
    tensors = load_tensors(path, expected_digest)
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise IntegrityError(f"the tensors of {path.name} do not fit: {shortened(error, LONGEST_PROBLEM)}") from error


def content_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the tensors' names, types, shapes and bytes, in hexadecimal.

    The digest does not depend on the file or on the order of the tensors. It is empty if there is no tensor or if a number is not
    finite. The second rule exists because two different diverged runs, whose weights are all nan, must not have the same digest.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        if not is_finite(tensor):
            return ""
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest() if tensors else ""


def is_finite(tensor: Tensor) -> bool:
    """Return whether a tensor contains neither inf nor nan."""
    if tensor.dtype in IN_NUMPY and tensor.device.type == "cpu":  # ten times as fast for a small tensor
        return bool(np.isfinite(tensor.detach().numpy()).all())
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())
