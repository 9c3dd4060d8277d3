"""Ways to train R replicas on one card or core, beside one alone: which wins, in microseconds a step of a run.

python -m benchmarks.replicas [DATASET]: on one core, four seeds of resmlp at each width, on digits or the named data set; a
minute. On a card: benchmarks.gpu.

in turns: what `study` does, a CUDA graph and a stream a run, launched by one thread. stacked: benchmarks.stacked. unrolled:
one run, so many steps in one graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from benchmarks.clock import Work, in_rounds
from benchmarks.products import steps_of
from benchmarks.stacked import StackedDfa
from benchmarks.timing import Spread
from fa_registry.records import RunSpec
from fa_registry.training.devices import pinned_threads
from fa_registry.training.run_setup import build_setup
from fa_registry.training.spec_plugins import with_defaults
from fa_registry.training.trainer import Trainer

STEPS_A_GRAPH = 8
WIDTHS = (64, 256, 1024)
ALONE, TURNS, STACKED, UNROLLED = "alone", "in turns", "stacked", f"alone, {STEPS_A_GRAPH} steps a graph"


def compare_ways(make: Callable[[int], Trainer], count: int, steps: int, rounds: int) -> dict[str, Spread]:
    """Way → microseconds a step of a run. make: seed → a fresh trainer of dfa on resmlp. steps: a round, of every run."""
    alone, unrolled = make(0), Unrolled(make(0), STEPS_A_GRAPH)
    turns, stacked = [make(seed) for seed in range(count)], StackedDfa([make(seed) for seed in range(count)])
    device, blocks = alone.setup.device, max(1, steps // STEPS_A_GRAPH)
    rows = count * stacked.size
    order = (torch.arange(steps * rows) % len(stacked.splits.train_labels)).to(device)
    ways: dict[str, tuple[Work, int]] = {
        ALONE: (steps_of(alone, steps), steps),
        UNROLLED: (unrolled.steps(blocks), blocks * STEPS_A_GRAPH),
        TURNS: (in_turns(turns, steps), steps * count),
        STACKED: (partial(stacked.take, order.split(rows)), steps * count),
    }
    return microseconds(ways, rounds, device)


def on_a_core(
    width: int, dataset: str = "digits", count: int = 4, steps: int = 8, rounds: int = 7
) -> dict[str, Spread]:
    """The same on this processor, at one thread."""

    def make(seed: int) -> Trainer:
        options = {"d_hidden": width, "num_blocks": 4}
        spec = RunSpec("dfa", "resmlp", dataset, seed, epochs=100, architecture_options=options)
        return Trainer(build_setup(with_defaults(spec), torch.device("cpu")))

    with pinned_threads(1):
        return compare_ways(make, count, steps, rounds)


def microseconds(ways: Mapping[str, tuple[Work, int]], rounds: int, device: torch.device) -> dict[str, Spread]:
    """Name → microseconds a step, of (work, its steps); see in_rounds."""
    taken = in_rounds({name: work for name, (work, _) in ways.items()}, rounds, device)
    return {name: Spread.of([1e6 * one / steps for one in taken[name]]) for name, (_, steps) in ways.items()}


def in_turns(trainers: Sequence[Trainer], steps: int) -> Work:
    """So many steps of each, none waiting for another, as the epochs of a study's runs."""
    each = [steps_of(trainer, steps) for trainer in trainers]

    def run() -> None:
        for work in each:
            work()

    return run


class Unrolled:
    """A trainer that takes `count` steps at once, in one graph where there is a GPU."""

    def __init__(self, trainer: Trainer, count: int):
        self.trainer, self.count = trainer, count
        self.size = trainer.setup.spec.recipe.batch_size
        self._advance = trainer._advance
        trainer._advance = self._many

    def steps(self, turns: int) -> Work:
        """`count` steps, so many times."""
        rows = self.count * self.size
        order = (torch.arange(turns * rows) % len(self.trainer.setup.splits.train_labels)).to(self.trainer.setup.device)
        return lambda: self.trainer.train_batch(order.split(rows))

    def _many(self, batch: torch.Tensor) -> None:
        for part in batch.split(self.size):
            self._advance(part)


def way_lines(found: Mapping[str, Spread]) -> list[str]:
    """The table people read."""
    first = found[ALONE].median
    lines = ["replicas of resmlp by dfa, microseconds a step of a run, and of that alone"]
    for name, spread in sorted(found.items(), key=lambda item: item[1].median):
        lines.append(
            f"  {name:<30}{spread.median:8.1f} ({spread.low:.1f} to {spread.high:.1f}) {spread.median / first:8.2f}"
        )
    return lines


def main(arguments: Sequence[str]) -> None:
    dataset = arguments[0] if arguments else "digits"
    for width in WIDTHS:
        print(f"{dataset}, D = {width}: " + "\n".join(way_lines(on_a_core(width, dataset))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
