"""The products of a training step, alone: what its arithmetic takes on this machine with nothing around it.

One step is watched for matrix products, convolutions and attention, forward and backward; then those are done again on the same
tensors, one after another. Their FLOP are counted by torch's own counter. So the limit holds for any method and architecture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.clock import Work, ratio
from benchmarks.timing import Spread
from fa_registry.training.controls import train_mode
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import Trainer

DENSE = ("mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "convolution_backward")
PRODUCTS = (*DENSE, "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention")


class StepProducts(TorchDispatchMode):
    """Every product of the steps taken inside, with what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], tuple, dict]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.overloadpacket.__name__ in PRODUCTS:
            kept = tuple(one.detach() if isinstance(one, torch.Tensor) else one for one in args)
            self.calls.append((func, kept, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def again(self) -> None:
        """All of them once more, results thrown away. A step has since written into some of their tensors: no matter."""
        for func, args, kwargs in self.calls:
            func(*args, **kwargs)


@dataclass(frozen=True)
class Limit:
    """A trainer, the products of one of its steps alone, and their FLOP, 2 a multiplication with its addition."""

    trainer: Trainer
    products: Work
    flop: int

    @classmethod
    def of(cls, task: RunSetup) -> Limit:
        step, watcher = _plain_step(Trainer(task)), StepProducts()
        step()  # allocates and chooses kernels
        with watcher:
            step()
        with FlopCounterMode(display=False) as counter:
            step()
        return cls(Trainer(task), _replayed(watcher.again, task.device), counter.get_total_flops())

    def share(self, steps: int, rounds: int) -> Spread:
        """Of its limit that a step reaches: its products alone / the step."""

        def products() -> None:
            for _ in range(steps):
                self.products()

        return ratio(products, steps_of(self.trainer, steps), rounds, self.trainer.setup.device)


def steps_of(trainer: Trainer, count: int) -> Callable[[], None]:
    """So many steps as an epoch takes them, captured where they are."""
    size, samples = trainer.setup.spec.recipe.batch_size, len(trainer.setup.splits.train_labels)
    order = (torch.arange(count * size) % samples).to(trainer.setup.device)
    return lambda: trainer.train_batch(order.split(size))


def _plain_step(trainer: Trainer) -> Work:
    """On the first batch, never captured."""
    splits, size = trainer.setup.splits, trainer.setup.spec.recipe.batch_size
    images = splits.augment(splits.train_images[:size], trainer.generators["augmentation"])
    train_mode(trainer.setup.network)
    return lambda: trainer.step(images, splits.train_labels[:size])


def _replayed(work: Callable[[], None], device: torch.device) -> Work:
    """`work` in a CUDA graph, so that its launches are not what is timed; on a CPU as it is."""
    if device.type != "cuda":
        return work
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            work()
    return graph.replay
