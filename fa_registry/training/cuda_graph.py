"""A training step captured in a CUDA graph: small networks wait for a hundred kernel launches a step, a graph has one.

The first batches are trained step by step, as CUDA asks before a capture; they count like any other. The last of them is a
rehearsal: a step that waits for the card is never captured, since torch has no way back from a capture that broke off. Its
allocator goes on believing in it (github.com/pytorch/pytorch/pull/180395), so that no other can begin, and up to torch 2.12 so
do the generators.
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
WAITING = "synchronizing CUDA operation"  # what torch says of one under its sync debug mode

GraphWork = Callable[[], None]
Capture = Callable[[GraphWork], GraphWork]  # takes work without running it, returns what replays it
Advance = Callable[[Tensor], None]


class CapturedStep:
    """Calls advance(batch), captured once warm: a graph for each size of batch, of which an epoch has two, the last one's too.

    capture: see cuda_capture. refused: why the step cannot be captured; empty where it can, as far as is known.
    """

    def __init__(self, device: torch.device, capture: Capture):
        self._device = device
        self._capture = capture
        self._sizes: dict[int, _Size] = {}
        self.refused = ""

    @property
    def how(self) -> str:
        """In words, what this does now."""
        if self.refused:
            return f"{PLAIN}: the step cannot be captured: {self.refused}"
        return CAPTURED if any(size.replay for size in self._sizes.values()) else PLAIN

    def __call__(self, advance: Advance, batch: Tensor) -> None:
        """advance: trains on the samples of a batch of indices (batch,); the same at every call. Reads and writes only
        tensors that stay where they are. It is not kept: its owner keeps this, and a cycle of the two would hold a card's
        memory until Python looks for cycles.
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
            # where CUDA ends a broken capture it raises again, of the breaking-off and no more of what broke it
            self._refuse(str(error.__context__ or error).splitlines()[0])
            return None

    def _refuse(self, reason: str) -> None:
        self.refused = reason
        self._sizes.clear()


@dataclass
class _Size:
    """Batches of one size: where their indices are put, how many were trained step by step, and the graph if there is one."""

    batch: Tensor
    warm: int = 0
    replay: GraphWork | None = None


def rehearsed(work: GraphWork, device: torch.device) -> str:
    """Do the work. Returns where it waits for the card, which no graph can hold; empty where it does not, and on a CPU."""
    if device.type != "cuda":
        work()
        return ""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as received:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")  # not "error": half a step must not be left behind
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
    return next((f"it waits for the card in {Path(wait.filename).name}, line {wait.lineno}" for wait in waits), "")


def cuda_capture(generators: Iterable[torch.Generator]) -> Capture:
    """Capture on the current stream, which must not be CUDA's default one, as for the steps before.

    generators: those that the work draws from; each replay moves them on as the work would.
    """
    on_card = [generator for generator in generators if generator.device.type == "cuda"]

    def capture(work: GraphWork) -> GraphWork:
        """What replays `work`, which is recorded and not run; raises RuntimeError where CUDA cannot capture it."""
        graph = torch.cuda.CUDAGraph()
        for generator in on_card:
            graph.register_generator_state(generator)
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                work()
        except RuntimeError:
            for generator in on_card:  # a broken capture never told them that it is over
                generator.graphsafe_set_state(generator.clone_state())
            raise
        return graph.replay

    return capture
