"""python -m benchmarks.gpu [--device cpu --dry] [--parts NAME ...] [--to FILE]: what a CUDA device does, in ten minutes at most.

Each part is a process with a time limit of its own: the tests that need a GPU; digits, and three runs each of fashion and tokens,
with CUDA graphs and step by step; eight runs side by side; a step of every method; the share of its limit that a step reaches; the
published loop. docs/measured/gpu.json, from which docs/performance.md is made, is written after every part, and a part that ends
early keeps what it measured. Training needs neither MLflow nor pydantic; a part whose packages or data are absent is skipped and
says so. --dry takes a step or two of each, to see that every line runs. Nothing of this was run on a GPU yet.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

import torch

from benchmarks import published_card
from benchmarks.clock import ratio, seconds
from benchmarks.products import Limit, steps_of
from benchmarks.recording import FOLDER, ROOT, keep
from fa_registry import methods
from fa_registry.datasets import cifar_shaped
from fa_registry.records import Recipe, RunSpec
from fa_registry.studies.executors.side_by_side import run_side_by_side
from fa_registry.training.devices import gpu_name
from fa_registry.training.loop import train, train_epochs
from fa_registry.training.measuring import measure
from fa_registry.training.run_setup import RunSetup, build_setup
from fa_registry.training.spec_plugins import find_plugins, with_defaults
from fa_registry.training.trainer import Trainer

MEASURED = FOLDER / "gpu.json"
GPU_TESTS = ("tests/training/test_cuda_graph_on_gpu.py", "tests/training/test_checkpoint.py")
OPTIONAL = ("mlflow", "pydantic", "pytest")
SKIPPED = 3  # exit status of a part that cannot be measured here
WAYS = ("by default", "step by step")  # by default in a CUDA graph, if the device is CUDA and the step can be captured
CIFAR = {"method": "dfa", "architecture": "resmlp"}
NETWORKS = {
    "resmlp, dfa": {},
    "small_resnet, dfa": {"architecture": "small_resnet"},
    "small_resnet, bp": {"architecture": "small_resnet", "method": "bp"},
    "vit_mini, dfa": {"architecture": "vit_mini"},
}


@dataclass(frozen=True)
class Size:
    """How much is measured. None for epochs, samples or networks: all that the study or the table names."""

    epochs: int | None = None
    samples: int | None = None
    networks: int | None = None
    steps: int = 50
    rounds: int = 5
    replicas: int = 8


DRY = Size(epochs=1, samples=300, networks=1, steps=1, rounds=1, replicas=2)

DRY_LIMIT = 10  # times a part's limit: on a CPU that does other work too


class Skipped(Exception):
    """A part that needs what is absent here."""


class Part:
    """What a part found so far, in a file that outlives its process."""

    def __init__(self, device: torch.device, size: Size, path: Path):
        self.device, self.size, self._path = device, size, path
        self._found: dict[str, Any] = {}

    def keep(self, name: str, value: Any) -> None:
        self._found[name] = value
        self._path.write_text(json.dumps(self._found), encoding="utf-8")

    def setup(self, spec: RunSpec) -> RunSetup:
        """The run on this part's device, with as many epochs and samples as its size says."""
        if reason := find_plugins(spec).dataset.absent():
            raise Skipped(reason)
        spec = replace(spec, device_class=self.device.type, epochs=self.size.epochs or spec.epochs)
        setup = build_setup(with_defaults(spec), self.device)
        splits, count = setup.splits, self.size.samples
        splits = replace(splits, train_images=splits.train_images[:count], train_labels=splits.train_labels[:count])
        return replace(setup, splits=splits)

    def cifar(self, **change: Any) -> RunSetup:
        """A run on images of CIFAR's shape, 50,000 or, dry, the fewest."""
        dataset = f"cifar_shaped:{cifar_shaped.LEAST}" if self.size.samples else "cifar_shaped"
        return self.setup(RunSpec(**{**CIFAR, "dataset": dataset, "seed": 42, "epochs": 20, **change}))


def run_tests(part: Part) -> None:
    """The tests that need a GPU. Without conftest.py, which is about stores and pages."""
    if absent := [name for name in ("pytest", "pydantic") if not importlib.util.find_spec(name)]:
        raise Skipped(f"the tests need {' and '.join(absent)}")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = ["pytest", "--noconftest", "-q", "-m", "gpu", f"--junit-xml={report}", "-p", "no:cacheprovider"]
        subprocess.run([sys.executable, "-m", *command, *GPU_TESTS], cwd=ROOT, check=False)
        if not report.is_file():
            raise RuntimeError("pytest wrote no report")
        suite = ElementTree.parse(report).getroot()[0]
    for name in ("tests", "skipped", "failures", "errors"):
        part.keep(name, int(suite.attrib[name]))
    failed = [
        case.attrib["name"] for case in suite if case.find("failure") is not None or case.find("error") is not None
    ]
    part.keep("failed", failed)
    if failed:
        raise RuntimeError(f"{len(failed)} tests failed, the first is {failed[0]}")


def first_runs(study: str) -> list[RunSpec]:
    """Three runs of a study, of one seed: its file is read without pydantic."""
    raw = tomllib.loads((ROOT / "projects" / study / "study.toml").read_text(encoding="utf-8"))
    grid, recipe = raw["grid"][0], dict(raw["recipe"])
    fields = {
        "architecture": grid["architectures"][0],
        "dataset": grid["datasets"][0],
        "seed": grid["seeds"][0],
        "epochs": recipe.pop("epochs"),
        "architecture_options": grid.get("architecture_options", {}),
        "recipe": Recipe(**recipe),
    }
    return [RunSpec(method=method, **fields) for method in grid["methods"][:3]]


def run_study(study: str) -> Callable[[Part], None]:
    """Return the part that trains three runs of a study with graphs, and step by step."""

    def run(part: Part) -> None:
        for spec in first_runs(study):
            for way in WAYS:
                trainer = Trainer(part.setup(spec))
                if way != WAYS[0]:
                    trainer.captured = None
                start = time.perf_counter()
                outcome = train(trainer, Silent())
                metric = trainer.setup.task.headline.name
                part.keep(
                    f"{spec.method}, {way}",
                    {
                        "seconds": time.perf_counter() - start,
                        "status": outcome.status,
                        "stepping": outcome.stepping,
                        metric: outcome.final.scalars[metric].value,
                        "failures": sorted(outcome.final.failures),
                    },
                )

    return run


def run_beside(part: Part) -> None:
    """Seconds a run of digits, alone and beside others."""
    spec = first_runs("digits")[-1]
    for count in (1, part.size.replicas):
        trainers = [Trainer(part.setup(replace(spec, seed=seed))) for seed in range(count)]
        part.keep(f"{count} at a time", {"seconds a run": _side_by_side(trainers, part.device) / count})


def run_steps(part: Part) -> None:
    """Milliseconds of a step of every method, in a graph and step by step."""
    for name in methods.CATALOG.names():
        if not methods.CATALOG.get(name).card.supports(CIFAR["architecture"]):
            continue
        found: dict[str, Any] = {}
        for way in WAYS:
            trainer = Trainer(part.cifar(method=name))
            if way != WAYS[0]:
                trainer.captured = None
            work = steps_of(trainer, part.size.steps)
            work()  # warms up and captures
            times = [seconds(work, part.device) for _ in range(part.size.rounds)]
            found |= {f"{way}, ms": 1e3 * median(times) / part.size.steps}
            found.setdefault("stepping", trainer.stepping)
        part.keep(name, found)


def run_limit(part: Part) -> None:
    """Share of its limit that a step reaches: its products alone, in a graph / the step."""
    for name, change in [*NETWORKS.items()][: part.size.networks]:
        limit = Limit.of(part.cifar(**change))
        part.keep(name, {"GFLOP": limit.flop / 1e9, **asdict(limit.share(part.size.steps, part.size.rounds))})


def run_published(part: Part) -> None:
    """The published loop / ours. Its data are on the GPU too, in its favour."""
    ours = Trainer(part.cifar())

    def epoch() -> None:
        ours.run_epoch()
        measure(ours.setup)

    pairs = {
        "step": (published_card.steps(part.cifar(), part.size.steps), steps_of(Trainer(part.cifar()), part.size.steps)),
        "epoch": (published_card.epoch(part.cifar()), epoch),
    }
    for name, (published, own) in pairs.items():
        part.keep(name, asdict(ratio(published, own, part.size.rounds, part.device)))


# Name, work, and the most seconds that its process may take; ten minutes in all.
PARTS: dict[str, tuple[Callable[[Part], None], int]] = {
    "GPU tests": (run_tests, 150),
    "digits": (run_study("digits"), 60),
    "fashion": (run_study("fashion"), 90),
    "tokens": (run_study("tokens"), 90),
    "side by side": (run_beside, 50),
    "steps": (run_steps, 70),
    "limit": (run_limit, 40),
    "published": (run_published, 40),
}


class Silent:
    """An observer that keeps nothing."""

    def on_epoch(self, row: object, trainer: Trainer) -> None:
        return None


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


def measured_part(name: str, device: str, is_dry: bool, limit: float) -> dict[str, Any]:
    """Run a part in a process of its own; return its state, its seconds, what it found, and what was amiss."""
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder) / "found.json", Path(folder) / "log"
        command = [sys.executable, "-m", "benchmarks.gpu", "--device", device, "--part", name, "--to", str(path)]
        start = time.perf_counter()
        with log.open("w") as output:
            process = subprocess.Popen(
                [*command, *(["--dry"] if is_dry else [])],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                state = {0: "done", SKIPPED: "skipped"}.get(process.wait(limit), "failed")
            except subprocess.TimeoutExpired:
                state = "timed out"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        taken = round(time.perf_counter() - start, 1)
        last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1][:500] if state != "done" else ""
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {"state": state, "seconds": taken, "limit": limit, "amiss": last, "found": found}


def gpu_lines(measured: Mapping[str, Any]) -> list[str]:
    """The table people read."""
    lines = [
        f"{measured['device']}{', dry' if measured['dry'] else ''}; absent: {', '.join(measured['absent']) or 'nothing'}"
    ]
    for name, part in measured["parts"].items():
        lines.append(f"{name}: {part['state']} after {part['seconds']:g} s{': ' * bool(part['amiss'])}{part['amiss']}")
        for subject, value in part["found"].items():
            fields = value.items() if isinstance(value, dict) else [("", value)]
            lines.append(f"  {subject:<28}" + "  ".join(f"{field} {_shown(one)}".strip() for field, one in fields))
    return lines


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run_all(names: Sequence[str], device: str, is_dry: bool, path: Path) -> dict[str, Any]:
    """Measure the parts in turn. The file is written after each."""
    card = gpu_name(torch.device(device)) or "CPU"
    absent = [name for name in OPTIONAL if not importlib.util.find_spec(name)]
    measured: dict[str, Any] = {"device": card, "dry": is_dry, "absent": absent, "parts": {}}
    for name in names:
        measured["parts"][name] = measured_part(name, device, is_dry, PARTS[name][1] * (DRY_LIMIT if is_dry else 1))
        keep(measured, path, card=card)
        print("\n".join(gpu_lines({**measured, "parts": {name: measured["parts"][name]}})[1:]), flush=True)
    return measured


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu only with --dry")
    parser.add_argument("--dry", action="store_true", help="a step or two of each part, to see that every line runs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], help="these parts alone")
    parser.add_argument("--to", type=Path, default=MEASURED, help=f"file for the answers, {MEASURED.name} without it")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)  # in a process of its own, see measured_part
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks.gpu: torch sees no CUDA device; there is nothing to measure here", file=sys.stderr)
        return 2
    if options.dry == (options.to == MEASURED) or (options.device == "cpu" and not options.dry):
        parser.error("--dry needs --to FILE, and --device cpu needs --dry")
    if not options.part:
        parts = run_all(options.parts, options.device, options.dry, options.to)["parts"].values()
        return int(any(part["state"] in ("failed", "timed out") for part in parts))
    device = (
        torch.device(options.device, torch.cuda.current_device()) if options.device == "cuda" else torch.device("cpu")
    )
    if options.dry:
        torch.set_num_threads(1)  # a machine that does other work too has no second thread to wait for
    try:
        PARTS[options.part][0](Part(device, DRY if options.dry else Size(), options.to))
    except Skipped as reason:
        print(reason)
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
