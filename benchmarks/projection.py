"""python -m benchmarks.projection [--study paper-full] [--device cuda] [--settings N]: what a whole study would take on one card.

Every kind of run in it (method, network, data, control, penalty or none) is trained for a few steps, as many side by side as
`study` trains, and measured once as after an epoch and once as at the end; what a run takes besides is timed once
(benchmarks.run_cost). These seconds are measured; their product with the study's epochs, steps and runs is a projection.
Image files are not needed: random pixels of CIFAR's shape take as long.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from benchmarks.clock import seconds
from benchmarks.replicas import in_turns
from benchmarks.run_cost import run_cost
from fa_registry import datasets
from fa_registry.datasets.base import DatasetCard, Splits
from fa_registry.records import RunSpec
from fa_registry.studies.study import load_study
from fa_registry.studies.study_files import StudyVariant
from fa_registry.training.device_names import CHOICES, resolve
from fa_registry.training.devices import gpu_name
from fa_registry.training.measuring import measure, with_final
from fa_registry.training.run_setup import RunSetup, build_setup_from_splits
from fa_registry.training.trainer import Trainer

STUDY, PIXELS, REPLICAS, STEPS = "paper-full", "cifar_shaped", 8, 50
AIM_MINUTES, PUBLISHED = 20, "about 12 hours on an A100"


@dataclasses.dataclass(frozen=True)
class Kind:
    """Measured: seconds of a step and of measuring, of one run among those side by side. The rest is counted.

    steps: of one run; epochs: of one run; runs: so many of this kind in the study.
    """

    name: str
    runs: int
    epochs: int
    steps: int
    step: float
    epoch_measuring: float
    final_measuring: float
    stepping: str

    @property
    def training(self) -> float:
        """Projected seconds in steps, of all runs of this kind."""
        return self.runs * self.steps * self.step

    @property
    def measuring(self) -> float:
        """Projected seconds of measuring: before the first epoch, after each, and at the end."""
        return self.runs * ((self.epochs + 1) * self.epoch_measuring + self.final_measuring)


@dataclasses.dataclass(frozen=True)
class Projection:
    """kinds: those that were timed; of `known` kinds that the study has. besides: seconds of a run, see run_cost."""

    study: str
    device: str
    replicas: int
    known: int
    kinds: tuple[Kind, ...]
    besides: float

    @property
    def runs(self) -> int:
        """Of the kinds that were timed."""
        return sum(kind.runs for kind in self.kinds)

    @property
    def minutes(self) -> float:
        """Projected, of the kinds that were timed."""
        return (sum(kind.training + kind.measuring for kind in self.kinds) + self.runs * self.besides) / 60

    @classmethod
    def of(cls, measured: Mapping[str, Any]) -> Projection:
        """From what was recorded."""
        return cls(**{**measured, "kinds": tuple(Kind(**kind) for kind in measured["kinds"])})


def project(
    specs: Sequence[RunSpec],
    study: str,
    device: torch.device,
    replicas: int = REPLICAS,
    steps: int = STEPS,
    settings: int | None = None,
    pixels: str = PIXELS,
) -> Projection:
    """Time the first `settings` kinds of these specs (all without), `steps` steps each. pixels: stands in for image sets."""
    kinds, load = defaultdict(list), _loader(device, StudyVariant(pixels))
    for spec in specs:
        kinds[_kind(spec)].append(spec)
    timed = [_time(same[0], len(same), load, replicas, steps) for same in list(kinds.values())[:settings]]
    besides = run_cost(device, max(spec.epochs for spec in specs))
    return Projection(study, gpu_name(device) or "CPU", replicas, len(kinds), tuple(timed), besides)


def _kind(spec: RunSpec) -> str:
    """What decides how long a run takes: neither its seed nor how strong its penalty is."""
    return dataclasses.replace(spec, seed=0, penalty=float(spec.penalty > 0)).identity


def _loader(device: torch.device, twin: StudyVariant) -> Callable[[RunSpec], RunSetup]:
    """Makes tasks on the twin's data sets; each is loaded once, for all seeds."""
    loaded: dict[str, tuple[DatasetCard, Splits]] = {}

    def load(spec: RunSpec) -> RunSetup:
        name = twin.dataset(spec.dataset)
        if name not in loaded:
            dataset = datasets.get(name)
            loaded[name] = dataset.card, dataset.load(device, None, 0)
        return build_setup_from_splits(spec, device, *loaded[name])

    return load


def _time(spec: RunSpec, runs: int, load: Callable[[RunSpec], RunSetup], replicas: int, steps: int) -> Kind:
    trainers = [Trainer(load(dataclasses.replace(spec, seed=seed))) for seed in range(replicas)]
    task, work = trainers[0].setup, in_turns(trainers, steps)
    work()  # warms up and captures
    first = measure(task)
    per_epoch = math.ceil(datasets.get(spec.dataset).card.train_samples / spec.recipe.batch_size)
    return Kind(
        name=" ".join([spec.method_label, spec.architecture, *_options(spec), spec.dataset]),
        runs=runs,
        epochs=spec.epochs,
        steps=spec.epochs * per_epoch,
        step=seconds(work, task.device) / (steps * replicas),
        epoch_measuring=seconds(lambda: measure(task), task.device),
        final_measuring=seconds(lambda: with_final(first, task, initial=trainers[0].initial), task.device),
        stepping=trainers[0].stepping,
    )


def _options(spec: RunSpec) -> list[str]:
    return [f"{name}={value}" for name, value in spec.architecture_options.items()]


def projection_lines(found: Projection) -> list[str]:
    """The table people read."""
    part = "" if len(found.kinds) == found.known else f", {len(found.kinds)} of its {found.known} kinds of runs"
    lines = [
        f"{found.study} on {found.device}{part}: {found.replicas} side by side",
        "  measured: µs a step of a run, ms an epoch's measuring, ms the last; projected: seconds of all runs of the kind",
        f"  {'runs':>5}{'steps each':>12}{'µs':>9}{'ms':>8}{'ms':>8}{'s steps':>10}{'s measuring':>13}  kind",
    ]
    for kind in sorted(found.kinds, key=lambda one: -one.training - one.measuring):
        lines.append(
            f"  {kind.runs:>5}{kind.steps:>12,}{1e6 * kind.step:>9.1f}{1e3 * kind.epoch_measuring:>8.1f}"
            f"{1e3 * kind.final_measuring:>8.1f}{kind.training:>10.1f}{kind.measuring:>13.1f}  {kind.name}"
        )
    aim = f"; aim ≤ {AIM_MINUTES}: {'met' if found.minutes <= AIM_MINUTES else 'MISSED'}" if not part else ""
    return [
        *lines,
        f"  starting, tracking and closing a run: {1e3 * found.besides:.0f} ms, of all {found.runs * found.besides:.1f} s",
        f"  projected, {found.runs} runs: {found.minutes:.1f} minutes{aim} (published: {PUBLISHED})",
    ]


def project_study(name: str, device: torch.device, **how: Any) -> Projection:
    """`project` of a study by its name; how: see project."""
    return project(load_study(name, {"device": device.type}).specs, name, device, **how)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.projection", description=__doc__.split("\n\n")[0])
    parser.add_argument("--study", default=STUDY)
    parser.add_argument("--device", default="auto", choices=CHOICES)
    parser.add_argument(
        "--replicas", type=int, default=REPLICAS, help="runs side by side; `study` trains eight on a GPU"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="timed steps of each run")
    parser.add_argument("--settings", type=int, default=None, help="time only the first so many kinds of runs")
    parser.add_argument(
        "--pixels", default=PIXELS, help="stands in for image sets: cifar_shaped:SAMPLES is sooner made"
    )
    options = vars(parser.parse_args(arguments))
    device = torch.device(resolve(options.pop("device")))
    print("\n".join(projection_lines(project_study(options.pop("study"), device, **options))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
