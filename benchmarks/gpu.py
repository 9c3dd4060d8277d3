"""python -m benchmarks.gpu [--json] [--record]: training on a CUDA device, alone, side by side, and beside the published loop.

resmlp D = 256, L = 4 by dfa on 50,000 images of CIFAR's shape, 100 epochs with all that a run measures by epoch, trained once
alone and eight times side by side; a step of every method compared with bp's; a step and an epoch of the published loop, whose
data are on the GPU too (in its favour); and the limit: the step's products and convolutions alone, in a CUDA graph. How long
all this takes is not known: it was not yet run on a GPU.
--record keeps the answers in docs/measured/gpu.json, from which docs/performance.md is made.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks import published_card
from benchmarks.clock import Work, ratio, seconds
from benchmarks.products import Limit, steps_of
from benchmarks.recording import FOLDER, add_options, tell
from benchmarks.timing import Spread
from fa_registry import methods
from fa_registry.datasets import cifar_shaped
from fa_registry.studies.executors.side_by_side import run_side_by_side
from fa_registry.training.devices import gpu_name
from fa_registry.training.loop import run_to_completion, train_epochs
from fa_registry.training.measuring import measure
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer

MEASURED = FOLDER / "gpu.json"
BASE = {"method": "dfa", "architecture": "resmlp", "dataset": cifar_shaped.PLUGIN.card.name, "seed": 42, "epochs": 100}
REPLICAS, ROUNDS, STEPS = 8, 7, 50
ALONE, BESIDE = 6.0, 2.0  # seconds a run of 100 epochs
METHOD, CONV = 3.0, 0.40  # a method's step / bp's; share of its limit


@dataclasses.dataclass(frozen=True)
class Gpu:
    """alone, side_by_side: seconds a run of 100 epochs. replicas: runs side by side. methods: step / bp's, by name.

    published, published_epoch: its step / ours, its epoch / ours, each with all that is measured after one.
    limit: share of its products' time that a step reaches, by network; stepping: how each method's steps were taken.
    """

    device: str
    replicas: int
    alone: float
    side_by_side: float
    published: Spread
    published_epoch: Spread
    methods: dict[str, Spread]
    limit: dict[str, Spread]
    gflop: dict[str, float]
    stepping: dict[str, str]

    @classmethod
    def of(cls, measured: Mapping[str, Any]) -> Gpu:
        """From what --record kept."""
        fields = {field.name: measured[field.name] for field in dataclasses.fields(cls)}
        for name in ("methods", "limit"):
            fields[name] = {key: Spread(**one) for key, one in fields[name].items()}
        for name in ("published", "published_epoch"):
            fields[name] = Spread(**fields[name])
        return cls(**fields)


def measure_gpu(
    device: torch.device,
    base: dict = BASE,
    steps: int = STEPS,
    rounds: int = ROUNDS,
    replicas: int = REPLICAS,
) -> Gpu:
    """Measure all of it. device: CUDA; a CPU, with fewer of everything, only to see that it runs."""

    def trainer(**change: Any) -> Trainer:
        return Trainer(build_setup(parse_spec({**base, **change, "device": device.type}), device))

    limits = {name: Limit.of(trainer(**change).setup) for name, change in NETWORKS.items()}
    names = [name for name in methods.CATALOG.names() if methods.CATALOG.get(name).card.supports(base["architecture"])]
    trainers = {name: trainer(method=name) for name in names}
    timed = {name: steps_of(one, steps) for name, one in trainers.items()}
    against_bp = {name: ratio(timed[name], timed["bp"], rounds, device) for name in names if name != "bp"}
    return Gpu(
        gpu_name(device) or "CPU",
        replicas,
        seconds(lambda: run_to_completion(train_epochs(trainer(), Silent())), device),
        _side_by_side([trainer(seed=seed) for seed in range(replicas)], device) / replicas,
        ratio(published_card.steps(trainer().setup, steps), timed["dfa"], rounds, device),
        ratio(published_card.epoch(trainer().setup), _epoch(trainer()), rounds, device),
        against_bp,
        {name: limit.share(steps, rounds) for name, limit in limits.items()},
        {name: limit.flop / 1e9 for name, limit in limits.items()},
        {name: one.stepping for name, one in trainers.items()},
    )


NETWORKS = {
    "resmlp, dfa": {},
    "small_resnet, dfa": {"architecture": "small_resnet"},
    "small_resnet, bp": {"architecture": "small_resnet", "method": "bp"},
    "vit_mini, dfa": {"architecture": "vit_mini"},
}


class Silent:
    """An observer that keeps nothing."""

    def on_epoch(self, row: object, trainer: Trainer) -> None:
        return None


def _epoch(trainer: Trainer) -> Work:
    """As a run has it, but for the tracking."""

    def run() -> None:
        trainer.run_epoch()
        measure(trainer.setup)

    return run


def _side_by_side(trainers: list[Trainer], device: torch.device) -> float:
    failed: list[str] = []

    def hear(event: object) -> None:
        if event.kind == "failed":
            failed.append(event.value)

    def steps(trainer: Trainer, stop: Callable[[], bool], report: Callable[[object], None]) -> object:
        return train_epochs(trainer, Silent(), stop)

    taken = seconds(lambda: run_side_by_side(trainers, steps, len(trainers), lambda: False, hear), device)
    if failed:
        raise RuntimeError(failed[0])
    return taken


def gpu_lines(found: Gpu) -> list[str]:
    """The table people read."""
    lines = [f"{found.device}: resmlp D = 256, L = 4, dfa, 100 epochs of 50,000, measured by epoch"]
    beside = f"{found.replicas} side by side"
    for what, value, aim in (("alone", found.alone, ALONE), (beside, found.side_by_side, BESIDE)):
        lines.append(f"  {what:<30}{value:8.2f} s a run    aim ≤ {aim:g}: {'met' if value <= aim else 'MISSED'}")
    lines.append(f"  {'published step / ours':<30}{_words(found.published)}")
    lines.append(f"  {'published epoch / ours':<30}{_words(found.published_epoch)}")
    for name, share in found.limit.items():
        aim = (
            f"    aim ≥ {CONV:.0%}: {'met' if share.median >= CONV else 'MISSED'}"
            if name.startswith("small_resnet")
            else ""
        )
        lines.append(f"  {name + ', of its limit':<30}{_words(share)}    {found.gflop[name]:.2f} GFLOP a step{aim}")
    for name, spread in sorted(found.methods.items(), key=lambda item: item[1].median):
        verdict = "met" if spread.median <= METHOD else "MISSED"
        lines.append(f"  {name + ' / bp':<30}{_words(spread)}    aim ≤ {METHOD:g}: {verdict}; {found.stepping[name]}")
    return lines


def _words(spread: Spread) -> str:
    return f"{spread.median:8.2f}  ({spread.low:.2f} to {spread.high:.2f})"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n\n")[0])
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("benchmarks.gpu: torch sees no CUDA device; there is nothing to measure here", file=sys.stderr)
        return 2
    found = measure_gpu(torch.device("cuda"))
    tell(dataclasses.asdict(found), gpu_lines(found), options, MEASURED, found.device)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
