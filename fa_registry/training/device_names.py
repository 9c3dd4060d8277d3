"""Names of devices and precisions, which are checked without torch if the device is a CPU.

The choice `auto` prefers CUDA. The choice `cuda` raises an error if there is no GPU.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from typing import Annotated

from fa_registry.field_types import Limits

CHOICES = ("auto", "cuda", "cpu")
Processes = Annotated[int, Limits(ge=0, le=1000)]  # processes that run at the same time; 0 for the default
PRECISIONS = ("fp32", "tf32", "bf16")
ONE_OF_SEVERAL = re.compile(r"cuda:(\d+)")


def resolve(name: str) -> str:
    """Return the device class, `cuda` or `cpu`, for a user's choice of device.

    The number of the GPU is not part of a specification. Use `on_device` to select a GPU by number.

    Args:
        name: auto, cuda, cpu, or a numbered GPU such as cuda:1.

    Raises:
        ValueError: if there is no such device.
    """
    if name not in CHOICES and not ONE_OF_SEVERAL.fullmatch(name):
        raise ValueError(f"expected one of {', '.join(CHOICES)}, or a numbered GPU such as cuda:1; found {name!r}")
    if name == "cpu" or (name == "auto" and "torch" not in sys.modules and _is_cpu_build()):
        return "cpu"
    import torch  # late, because the import takes seconds

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not torch.cuda.is_available():
        raise ValueError(f"{name} was requested, but torch finds no CUDA device; use cpu or auto")
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if ":" in name else []
    if ":" in name and name not in gpus:
        raise ValueError(
            f"{name} was requested, but torch finds only {', '.join(gpus)}; use cuda, cpu, or one of the GPUs found"
        )
    return name.partition(":")[0]


def _is_cpu_build() -> bool:
    """Return whether the installed torch supports no GPU, as a version such as 2.13.0+cpu shows."""
    try:
        return (importlib.metadata.version("torch") or "").endswith("+cpu")  # None if the metadata are damaged
    except importlib.metadata.PackageNotFoundError:  # torch was not installed as a package
        return False


def obstacle(precision: str, device_class: str, replaces_weights: bool) -> str:
    """Return the reason why a run cannot train in this precision, or an empty string.

    Args:
        precision: fp32, tf32 or bf16.
        device_class: cuda or cpu.
        replaces_weights: whether the method replaces weights in the backward pass.
    """
    if precision == "tf32" and device_class != "cuda":
        return "tf32 exists only on CUDA, not on a CPU"
    if precision == "bf16" and replaces_weights:
        return "bf16 uses autocast, which does not support the replaced weights of this method's backward pass"
    return ""
