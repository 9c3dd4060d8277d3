"""A training step captured in a CUDA graph, which replaces a hundred kernel launches a step by one.

The first batches are trained step by step, as CUDA requires before a capture; they count like any other. The last of them is
a rehearsal: a step that waits for the GPU is never captured, since torch cannot recover from an interrupted capture. Its
allocator then still counts the capture as active (github.com/pytorch/pytorch/pull/180395), so that no other can begin; up to
torch 2.12 the generators do so too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

WARM_UP = 3  # steps before the capture: allocations, library handles and the optimiser's state must exist by then
PLAIN = "step by step"
CAPTURED = "CUDA graph"
WAITING = "synchronizing CUDA operation"  # torch's text for a wait in its sync debug mode

GraphWork = Callable[[], None]
Capture = Callable[[GraphWork], GraphWork]  # records work without running it, returns the function that replays it
Advance = Callable[[Tensor], None]


class CapturedStep:
    """Calls advance(batch), captured once warm: one graph for each size of batch.

    An epoch has up to two sizes, because the last batch may be smaller.

    Attributes:
        capture: see cuda_capture.
        refused: why the step cannot be captured; empty if no reason is known.
    """

    def __init__(self, device: torch.device, capture: Capture):
        self._device = device
        self._capture = capture
        self._sizes: dict[int, _Size] = {}
        self.refused = ""

    @property
    def how(self) -> str:
        """Return a description of how steps are run now."""
        if self.refused:
            return f"{PLAIN}: the step cannot be captured: {self.refused}"
        return CAPTURED if any(size.replay for size in self._sizes.values()) else PLAIN

    def __call__(self, advance: Advance, batch: Tensor) -> None:
        """Run one step, from a graph if there is one.

        Args:
            advance: trains on the samples of a batch of indices (batch,); the same at every call. It reads and writes only
                tensors that keep their address. It is not stored here: its owner refers to this object, and such a cycle would
                occupy GPU memory until Python's garbage collection.
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
            self._warm_up(size, work)
            return
        if size.replay is None:
            size.replay = self._captured(work)
        (size.replay or work)()

    def _warm_up(self, size: _Size, work: GraphWork) -> None:
        size.warm += 1
        if size.warm < WARM_UP:
            work()
        elif waits := rehearsed(work, self._device):
            self._refuse(waits)

    def _captured(self, work: GraphWork) -> GraphWork | None:
        try:
            return self._capture(work)
        except RuntimeError as error:
            # when CUDA ends a broken capture, it raises another error, which names only the interruption
            self._refuse(str(error.__context__ or error).splitlines()[0])
            return None

    def _refuse(self, reason: str) -> None:
        self.refused = reason
        self._sizes.clear()


@dataclass
class _Size:
    """Batches of one size: the buffer of their indices, the steps trained so far, and the graph if any."""

    batch: Tensor
    warm: int = 0
    replay: GraphWork | None = None


def rehearsed(work: GraphWork, device: torch.device) -> str:
    """Do the work; return where it waits for the GPU, which no graph can record; empty if it does not.

    Always empty on a CPU.
    """
    if device.type != "cuda":
        work()
        return ""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as received:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")  # not "error": a step must not stop halfway
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    waits = [warning for warning in received if WAITING in str(warning.message)]
    for warning in received:
        if warning not in waits:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno, source=warning.source
            )
    return next((f"it waits for the GPU in {Path(wait.filename).name}, line {wait.lineno}" for wait in waits), "")


def cuda_capture(generators: Iterable[torch.Generator]) -> Capture:
    """Return a function that captures on the current stream, which must not be CUDA's default stream.

    Args:
        generators: those that the work draws from; each replay advances them as the work would.
    """
    on_card = [generator for generator in generators if generator.device.type == "cuda"]

    def capture(work: GraphWork) -> GraphWork:
        """Record `work` without running it and return the function that replays it.

        Raises:
            RuntimeError: CUDA cannot capture it.
        """
        graph = torch.cuda.CUDAGraph()
        for generator in on_card:
            graph.register_generator_state(generator)
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                work()
        except RuntimeError:
            for generator in on_card:  # a broken capture does not reset them
                generator.graphsafe_set_state(generator.clone_state())
            raise
        return graph.replay

    return capture
