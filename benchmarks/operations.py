"""python -m benchmarks.operations: how many operations a training step of every method hands to the device.

Views and allocations are not counted: on a GPU they launch nothing. A step in a CUDA graph takes about a microsecond or two for
each of the others, however small, so for small networks this is what bounds it there. Counted on a CPU: resmlp D = 256, L = 4.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.step_time import BATCH
from benchmarks.tasks import cifar_task
from fa_registry import methods
from fa_registry.training.controls import train_mode
from fa_registry.training.trainer import Trainer

FREE = {
    "_record_function_enter_new",
    "_record_function_exit",
    "empty",
    "empty_like",
    "new_empty",
    "detach",
    "_unsafe_view",
}


class Operations(TorchDispatchMode):
    """Counts by name what is called inside."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in FREE and not func.is_view:
            self.count[name] += 1
        return func(*args, **(kwargs or {}))


def operations(trainer: Trainer) -> Counter[str]:
    """Of one step after the first, augmentation and sums included: name → how often."""
    batch = torch.arange(trainer.task.spec.recipe.batch_size)
    train_mode(trainer.task.network)
    trainer._advance(batch)
    with Operations() as seen:
        trainer._advance(batch)
    return seen.count


def every_method() -> dict[str, int]:
    """Method → operations a step, on the main setting's network."""
    names = [name for name in methods.CATALOG.names() if methods.CATALOG.get(name).card.supports("resmlp")]
    return {name: operations(Trainer(cifar_task(name, BATCH, BATCH))).total() for name in names}


if __name__ == "__main__":
    found = every_method()
    for name, count in sorted(found.items(), key=lambda item: item[1]):
        print(f"  {name:<24}{count:6}{count / found['bp']:8.2f} × bp")
