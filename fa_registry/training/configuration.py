"""Record the settings that decide how a process rounds float32 results.

These settings are the instruction set and the settings of mathematical libraries, not the program. A digest of computed results is
recorded too. If two processes have equal settings but round differently, their digests differ.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from fa_registry.records import Scalar

# Environment variables that choose kernels or rounding in torch, oneDNN, MKL, OpenBLAS and numpy.
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_CPU_ISA_HINTS",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "ONEDNN_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)
LONGEST = 40  # recorded characters of a variable's value
# rows, inner dimension and columns of the fingerprint's matrix products
SHAPES = ((128, 64, 64), (128, 256, 256), (33, 64, 10))


def configuration() -> dict[str, Scalar]:
    """Return the settings that decide how this process rounds float32 results.

    Returns:
        Mapping with three entries.
        instruction_set: the instruction set of torch's kernels, and every environment variable that limits a library.
        math_library: the libraries that torch uses for multiplications, and the switches that change results.
        fingerprint: first 16 hexadecimal digits of a SHA-256 of computed results, at the current number of threads.
    """
    limits = [f"{name}={os.environ[name][:LONGEST]}" for name in VARIABLES if os.environ.get(name)]
    return {
        "instruction_set": ", ".join([torch.backends.cpu.get_cpu_capability(), *limits]),
        "math_library": ", ".join(_libraries()),
        "fingerprint": _fingerprint(torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()),
    }


def _libraries() -> Iterator[str]:
    """Yield the libraries that torch uses for multiplications, and each switch that is not at its default."""
    yield "MKL" if torch.backends.mkl.is_available() else "no MKL"
    enabled = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    yield "oneDNN" if enabled else "no oneDNN"
    if torch.get_float32_matmul_precision() != "highest":
        yield f"float32 products {torch.get_float32_matmul_precision()}"
    if torch.are_deterministic_algorithms_enabled():
        yield "deterministic algorithms"
    if (torch.full((16,), 1e-38) * 0.5).eq(0).any().item():  # torch cannot report this setting
        yield "denormals flushed"


@cache  # the computation takes some milliseconds
def _fingerprint(threads: int, deterministic: bool) -> str:
    """Return 16 digits of a SHA-256 of computed results, cached per thread count and kernel choice."""
    digest = hashlib.sha256()
    with torch.no_grad():
        for result in _results():
            digest.update(result.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _results() -> Iterator[Tensor]:
    """Yield random tensors and what the kernels of training and measuring compute from these tensors."""
    generator = torch.Generator().manual_seed(0)
    for rows, inner, columns in SHAPES:
        left, right = torch.randn(rows, inner, generator=generator), torch.randn(columns, inner, generator=generator)
        yield from (left, right, torch.nn.functional.linear(left, right), left.double() @ right.double().T)
        for function in (torch.tanh, torch.exp, torch.erf, torch.nn.functional.gelu):
            yield function(left)
        yield from (left.softmax(1), left.log_softmax(1), left.sum(0), left.sum(), left.norm(dim=1))
        yield torch.nn.functional.layer_norm(left, (inner,))
    image, kernel = torch.randn(4, 8, 8, 8, generator=generator), torch.randn(8, 8, 3, 3, generator=generator)
    yield torch.nn.functional.conv2d(image, kernel, padding=1)
    yield torch.full((16,), 1e-38) * 0.5
