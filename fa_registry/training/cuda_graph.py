"""Capture of a training step in a CUDA graph.

With a graph, a step needs one kernel launch instead of about a hundred. CUDA requires some warm-up steps before a capture. These
warm-up steps are ordinary training steps on the first batches. The last warm-up step also detects whether the step waits for the
GPU. A step that waits is never captured, because torch cannot recover from an interrupted capture. After an interrupted capture,
the allocator still counts the capture as active (github.com/pytorch/pytorch/pull/180395), so no other capture can begin. Up to
torch 2.12, the random generators also count an interrupted capture as active.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

WARM_UP = 3  # steps before the capture, which create allocations, library handles and the optimiser's state
PLAIN = "step by step"
CAPTURED = "CUDA graph"
WAITING = "synchronizing CUDA operation"  # torch's text for a wait in its sync debug mode

GraphWork = Callable[[], None]
Capture = Callable[[GraphWork], GraphWork]  # records work without running it, returns the function that replays it
Advance = Callable[[Tensor], None]


class CapturedStep:
    """Runs training steps, and captures a step in a CUDA graph after warm-up steps, see `cuda_capture`.

    There is one graph per batch size. An epoch has at most two batch sizes, because its last batch may be smaller. `refused` is
    the reason why the step cannot be captured, or an empty text if no reason is known.
    """

    def __init__(self, device: torch.device, capture: Capture):
        self._device = device
        self._capture = capture
        self._sizes: dict[int, _Size] = {}
        self.refused = ""

    @property
    def how(self) -> str:
        """Description of how steps run now: as a CUDA graph, or operation by operation."""
        if self.refused:
            return f"{PLAIN}: the step cannot be captured as a CUDA graph: {self.refused}"
        return CAPTURED if any(size.replay for size in self._sizes.values()) else PLAIN

    def __call__(self, advance: Advance, batch: Tensor) -> None:
        """Run one step on a batch (batch,) of sample indices. Use the graph of this batch size if it exists.

        `advance` trains on the samples of a batch, and must be the same function at every call. The function may read and write
        only tensors whose address does not change. CapturedStep does not store the function. The trainer owns the function and
        refers to CapturedStep, so a stored function would create a reference cycle, which occupies GPU memory until Python's
        garbage collection.
        """
        if self.refused:
            advance(batch)
            return
        size = self._sizes.get(len(batch))
        if size is None:
            size = self._sizes[len(batch)] = _Size(torch.empty_like(batch))
        size.batch.copy_(batch)

        def work() -> None:
            advance(size.batch)

        if size.warm < WARM_UP:
            size.warm += 1
            if size.warm < WARM_UP:
                work()
            elif reason := rehearsed(work, self._device):
                self._refuse(reason)
            return
        if size.replay is None:
            try:
                size.replay = self._capture(work)
            except RuntimeError as error:
                # when CUDA ends a broken capture, it raises another error, which names only the interruption
                self._refuse(str(error.__context__ or error).splitlines()[0])
        (size.replay or work)()

    def release(self) -> None:
        """Free the graphs and the GPU memory of their tensors. Later steps warm up and capture again."""
        self._sizes.clear()

    def _refuse(self, reason: str) -> None:
        self.refused = reason
        self.release()


@dataclass
class _Size:
    """The state of one batch size: the index buffer, the number of warm-up steps so far, and the graph."""

    batch: Tensor
    warm: int = 0
    replay: GraphWork | None = None


def rehearsed(work: GraphWork, device: torch.device) -> str:
    """Run one step and return the file and line that wait for the GPU.

    A CUDA graph cannot record a step that waits. The text is empty if the step does not wait or the device is a CPU.
    """
    if device.type != "cuda":
        work()
        return ""
    previous_mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")  # the mode is off after the step
        torch.cuda.set_sync_debug_mode("warn")  # not "error": a step must not stop halfway
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode(previous_mode)
    waits = [warning for warning in caught_warnings if WAITING in str(warning.message)]
    for warning in caught_warnings:
        if warning not in waits:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno, source=warning.source
            )
    return next((f"the step waits for the GPU in {Path(wait.filename).name}, line {wait.lineno}" for wait in waits), "")


def cuda_capture(generators: Iterable[torch.Generator]) -> Capture:
    """Return a function that captures a step on the current CUDA stream.

    The stream must not be CUDA's default stream. Each replay advances the random generators of the step in the same way as the
    step does.
    """
    cuda_generators = [generator for generator in generators if generator.device.type == "cuda"]

    def capture(work: GraphWork) -> GraphWork:
        """Record `work` without running it, and return the function that replays it.

        Raises:
            RuntimeError: if CUDA cannot capture the work.
        """
        graph = torch.cuda.CUDAGraph()
        for generator in cuda_generators:
            graph.register_generator_state(generator)
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                work()
        except RuntimeError:
            for generator in cuda_generators:  # a broken capture does not reset the generators
                generator.graphsafe_set_state(generator.clone_state())
            raise
        return graph.replay

    return capture
