"""The device, CPU cores and threads of a training, and the precision of its products.

auto prefers CUDA; cuda without a GPU is an error. Measuring always uses full float32 and float64.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from fa_registry.parallel import usable_cores

CHOICES = ("auto", "cuda", "cpu")
ONE_OF_SEVERAL = re.compile(r"cuda:(\d+)")


def resolve(name: str) -> str:
    """Return `cuda` or `cpu` for auto, cuda, cuda:1 or cpu.

    The number of the GPU is no part of a specification: see `on_device`.

    Raises:
        ValueError: there is no such device.
    """
    if name not in CHOICES and not ONE_OF_SEVERAL.fullmatch(name):
        raise ValueError(f"expected one of {', '.join(CHOICES)}, or a GPU as cuda:1; found {name!r}")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"{name} was asked for, but torch sees no CUDA device; use cpu or auto")
    cards = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if ":" in name else []
    if ":" in name and name not in cards:
        raise ValueError(f"{name} was asked for, but torch sees only {', '.join(cards)}; use one of them, cuda or cpu")
    return name.partition(":")[0]


@contextmanager
def on_device(name: str) -> Iterator[None]:
    """Context manager: cuda means the GPU of this name, such as cuda:1; any other name has no effect."""
    card = ONE_OF_SEVERAL.fullmatch(name)
    with torch.cuda.device(int(card[1])) if card else nullcontext():
        yield


def device_of(device_class: str) -> torch.device:
    """Return the device for a specification of this class; a GPU with its number, as caches belong to it."""
    return torch.device("cuda", torch.cuda.current_device()) if device_class == "cuda" else torch.device(device_class)


def gpu_name(device: torch.device) -> str:
    """Return the GPU's name, empty on a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


MOST_THREADS = 256  # or as many as this machine has cores


def threads_refused(count: int) -> str:
    """Return why a run is not recomputed with `count` CPU threads, which all start at once; else empty."""
    most = max(usable_cores(), MOST_THREADS)
    return f"the run was measured with {count:,} threads; this machine starts at most {most}" if count > most else ""


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """Run with exactly `count` CPU threads.

    The number of threads decides the order of sums, so metrics are bit-equal only at equal numbers.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


MOST_PROCESSES = 1000  # at a time, regardless of the requested number
PRECISIONS = ("fp32", "tf32", "bf16")

Run = Callable[..., Tensor]


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Context manager: CUDA's float32 products are TF32 for "tf32", else exact; then restored."""
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = "tf32" if precision == "tf32" else "ieee"
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


def call(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Call a part of the network without conversion."""
    return part(*inputs)


def runner(precision: str, device: torch.device) -> Run:
    """Return run(part, *inputs) → float32, which calls a part of the network in this precision."""
    if precision != "bf16":
        return call

    def run(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        # no part uses a weight twice, and a cache filled in a CUDA graph would refer to the graph's memory
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return part(*inputs).float()

    return run


def bf16_gain() -> float:
    """Return how much faster this processor multiplies bfloat16 than float32, at one thread.

    It is 3 to 4 with AVX512-BF16. Both are timed in turns, in CPU seconds, for some 50 ms.
    """
    size, rounds = 512, 7
    exact = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    with pinned_threads(1):
        for _ in range(rounds):
            for dtype, taken in seconds.items():
                factor = exact.to(dtype)
                began = time.process_time()
                torch.mm(factor, factor)
                taken.append(time.process_time() - began)
    return min(seconds[torch.float32]) / max(min(seconds[torch.bfloat16]), 1e-9)


def obstacle(precision: str, device_class: str, replaces_weights: bool) -> str:
    """Return why a run cannot train in this precision; empty if it can."""
    if precision == "tf32" and device_class != "cuda":
        return "tf32 products exist only on CUDA, not on a CPU"
    if precision == "bf16" and replaces_weights:
        return "bf16 uses autocast, which does not support the replaced weights of this method's backward pass"
    return ""
