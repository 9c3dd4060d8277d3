"""A training step captured in a CUDA graph: small networks wait for a hundred kernel launches a step, a graph has one.

The first batches are trained step by step, as CUDA asks before a capture; they count like any other.
A capture runs nothing, so one that fails has changed nothing: training goes on step by step, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

WARM_UP = 3  # steps before the capture: allocations, library handles and the optimiser's state must exist by then
PLAIN = "step by step"
CAPTURED = "CUDA graph"

Work = Callable[[], None]
Capture = Callable[[Work], Work]  # takes work without running it, returns what replays it


class CapturedStep:
    """Calls `advance(batch)` for batches of one size, captured once warm; every other batch size step by step.

    advance: trains on the samples of a batch of indices (batch,); reads and writes only tensors that stay where they are.
    capture: see cuda_capture. how: in words, what this does now; with the reason where a capture failed.
    """

    def __init__(self, advance: Callable[[Tensor], None], size: int, device: torch.device, capture: Capture):
        self._advance = advance
        self._batch = torch.zeros(size, dtype=torch.int64, device=device)
        self._capture = capture
        self._warm = 0
        self._replay: Work | None = None
        self.how = PLAIN

    def __call__(self, batch: Tensor) -> None:
        if len(batch) != len(self._batch) or self.how.startswith(f"{PLAIN}:"):
            self._advance(batch)
            return
        self._batch.copy_(batch)
        if self._replay is None and self._warm == WARM_UP:
            self._record()
        if self._replay is not None:
            self._replay()
        else:
            self._work()
            self._warm += 1

    def _work(self) -> None:
        self._advance(self._batch)

    def _record(self) -> None:
        try:
            self._replay = self._capture(self._work)
            self.how = CAPTURED
        except RuntimeError as error:  # a method may look at its numbers on the host, which no graph can
            self.how = f"{PLAIN}: the step cannot be captured: {str(error).splitlines()[0]}"


def cuda_capture(generators: Iterable[torch.Generator]) -> Capture:
    """Capture on the current stream, which must not be CUDA's default one, as for the steps before.

    generators: those that the work draws from; each replay moves them on as the work would.
    """
    on_card = [generator for generator in generators if generator.device.type == "cuda"]

    def capture(work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        for generator in on_card:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            work()
        return graph.replay

    return capture
