"""python -m benchmarks.operations [--json] [--record]: how many operations a training step of every method hands to the device.

Views and allocations are not counted: on a GPU they launch nothing. A step in a CUDA graph takes about a microsecond or two for
each of the others, however small, so for small networks this is what bounds it there. Counted on a CPU: resmlp D = 256, L = 4.
--record keeps the counts in docs/measured/operations.json, from which docs/performance.md is made.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.recording import FOLDER, add_options, tell
from benchmarks.step_time import BATCH
from benchmarks.tasks import cifar_task
from fa_registry import methods
from fa_registry.training.controls import train_mode
from fa_registry.training.trainer import Trainer

MEASURED = FOLDER / "operations.json"
TARGET = 3.0  # times bp's
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
    batch = torch.arange(trainer.setup.spec.recipe.batch_size)
    train_mode(trainer.setup.network)
    trainer._advance(batch)
    with Operations() as seen:
        trainer._advance(batch)
    return seen.count


def every_method() -> dict[str, int]:
    """Method → operations a step, on the main setting's network."""
    names = [name for name in methods.CATALOG.names() if methods.CATALOG.get(name).card.supports("resmlp")]
    return {name: operations(Trainer(cifar_task(name, BATCH, BATCH))).total() for name in names}


def operation_lines(found: Mapping[str, int]) -> list[str]:
    """The table people read, least first."""
    ordered = sorted(found.items(), key=lambda item: item[1])
    return [f"  {name:<24}{count:6}{count / found['bp']:8.2f} × bp" for name, count in ordered]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operations", description=__doc__.split("\n\n")[0])
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    found = every_method()
    tell({"counts": found}, operation_lines(found), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
