"""Device, CPU threads, precision and rounding of a training.

Measuring always uses full float32 and float64, regardless of the training's precision.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

import torch
from torch import Tensor

from fa_registry.parallel import usable_cores
from fa_registry.records import Scalar
from fa_registry.training.device_names import ONE_OF_SEVERAL


@contextmanager
def on_device(name: str) -> Iterator[None]:
    """Context manager: make `cuda` refer to a numbered GPU such as cuda:1. Any other name has no effect."""
    match = ONE_OF_SEVERAL.fullmatch(name)
    with torch.cuda.device(int(match[1])) if match else nullcontext():
        yield


def device_of(device_class: str) -> torch.device:
    """Return the torch device for a device class, `cuda` or `cpu`.

    The device of `cuda` includes the GPU's number, because caches depend on that number.
    """
    return torch.device("cuda", torch.cuda.current_device()) if device_class == "cuda" else torch.device(device_class)


def gpu_name(device: torch.device) -> str:
    """Return the name of the GPU, or an empty string for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


MOST_THREADS = 256  # on a machine with more cores, the limit is the number of its cores


def threads_refused(count: int) -> str:
    """Return an error text if this machine must not start `count` CPU threads, else an empty text.

    The limit exists because all threads start at the same time when a run is recomputed.
    """
    limit = max(usable_cores(), MOST_THREADS)
    return f"the run was measured with {count:,} threads; this machine starts at most {limit}" if count > limit else ""


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """Context manager: run with exactly `count` CPU threads.

    The number of threads decides the order of sums. Therefore metrics are equal bit by bit only with the same number of threads.
    """
    previous_count = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous_count)


Run = Callable[..., Tensor]


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Context manager: set the precision of CUDA's float32 matrix products, and restore it on exit.

    For the precision "tf32", the matrix products use TF32. For any other precision, they use full float32.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    switches = (matmul, cudnn.conv, cudnn.rnn)
    previous_precisions = [switch.fp32_precision for switch in switches]

    def set_all(values: list[str]) -> None:
        # torch raises if other code reads the older flags `allow_tf32` and they contradict `fp32_precision`
        matmul.allow_tf32, cudnn.allow_tf32 = values[0] == "tf32", values[1] == values[2] == "tf32"
        for switch, value in zip(switches, values, strict=True):
            switch.fp32_precision = value

    try:
        set_all(["tf32" if precision == "tf32" else "ieee"] * len(switches))
        yield
    finally:
        set_all(previous_precisions)


def call(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Call a part of the network in its present precision."""
    return part(*inputs)


def runner(precision: str, device: torch.device) -> Run:
    """Return run(part, *inputs), which calls a part of the network in this precision, with float32 result."""
    if precision != "bf16":
        return call

    def run(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        # The cache of autocast saves nothing, because no part uses a weight twice. A cache that is filled in a CUDA graph would
        # refer to the graph's memory.
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return part(*inputs).float()

    return run


def bf16_gain() -> float:
    """Measure how many times faster bfloat16 matrix products are than float32, on one CPU thread.

    The factor is 3 to 4 on processors with AVX512-BF16. The function measures the CPU time of both products alternately, which
    takes about 50 ms.
    """
    size, rounds = 512, 7
    exact = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    with pinned_threads(1):
        for _ in range(rounds):
            for dtype, times in seconds.items():
                factor = exact.to(dtype)
                start = time.process_time()
                torch.mm(factor, factor)
                times.append(time.process_time() - start)
    return min(seconds[torch.float32]) / max(min(seconds[torch.bfloat16]), 1e-9)


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
        fingerprint: first 16 hexadecimal digits of a SHA-256 of computed results, at the current number of threads. The
            fingerprint also differs if two processes have equal settings but round differently.
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
