"""python -m benchmarks.configurations [--json] [--record]: how far other configurations move what an audit recomputes.

Two studies are trained under the default configuration. Then each configuration of CONFIGURATIONS, emulated by environment
variables in a process of its own, audits them, draws every method's initial tensors and trains its first steps.
--record keeps the largest deviation of every metric in docs/measured/configurations.json, the source of
fa_registry/protocol/integrity.py. Some four minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.recording import FOLDER, ROOT, add_options, tell
from fa_registry import jsonio, methods
from fa_registry.protocol.integrity import pairs, tolerance_of
from fa_registry.records import Measurements, RunAudit

MEASURED = FOLDER / "configurations.json"
AUDITS = "audits.json"


@dataclass(frozen=True)
class Configuration:
    """environment: variables that a process starts with. threads: what the audit pins, whatever the run had."""

    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1


CONFIGURATIONS = {
    "default": Configuration(),
    "AVX2 kernels": Configuration({"ATEN_CPU_CAPABILITY": "avx2"}),
    "kernels without AVX": Configuration({"ATEN_CPU_CAPABILITY": "default"}),
    "oneDNN AVX2": Configuration({"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "oneDNN SSE4.1": Configuration({"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "MKL compatible": Configuration({"MKL_CBWR": "COMPATIBLE"}),
    "two threads": Configuration(threads=2),
    "all AVX2": Configuration(
        {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    ),
    "all without AVX": Configuration(
        {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
    ),
}
GRID = """
[[grid]]
methods = [{methods}]
penalties = [{penalty}]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [{seeds}]
architecture_options = {{ {options} }}
"""
HEAD = """
name = "{name}"
title = "Configurations"
edition = "2026-12"
cost = "a minute"

[recipe]
{recipe}

[controls]
frozen = true
"""
SMALL, MIDDLE, LARGE = "d_hidden = 16, num_blocks = 2", "d_hidden = 64, num_blocks = 2", ""
# study → the recipe's lines, and a grid a row: methods, penalty, seeds, options of the network
STUDIES: dict[str, tuple[str, tuple[tuple[str, float, str, str], ...]]] = {
    "short": (
        "epochs = 5",
        (('"bp", "fa", "dfa"', 0.0, "1", SMALL), ('"dfa"', 0.01, "1", SMALL), ('"bp"', 0.0, "42", LARGE)),
    ),
    "long": (
        "epochs = 30",
        (('"bp"', 0.0, "42, 123", LARGE), ('"fa", "dfa"', 0.0, "42", LARGE), ('"dfa"', 0.01, "42", LARGE)),
    ),
    "fitted": ("epochs = 100", (('"bp"', 0.0, "42", LARGE),)),
    # gradients near float32's resolution, where configurations differ the most
    "resolved": ("epochs = 400\nlearning_rate = 0.003\nweight_decay = 0.0", (('"bp"', 0.0, "42", MIDDLE),)),
}


def measure() -> dict[str, Any]:
    """Return the recorded data: a row a configuration, the largest deviation of each metric, of draws and of first steps."""
    with tempfile.TemporaryDirectory(prefix="fa_registry-configurations-") as name:
        folder = Path(name)
        for study, (recipe, grids) in STUDIES.items():
            (folder / f"{study}.toml").write_text(_study_text(study, recipe, grids), encoding="utf-8")
            _run(["-m", "fa_registry", "study", f"{study}.toml", "--device", "cpu", "--jobs", "1"], folder)
        return compared(folder)


def compared(folder: Path) -> dict[str, Any]:
    """Audit the trained store of `folder` under every configuration; see `measure`."""
    rows, deviations, tensors = {}, {}, {}
    for label, configuration in CONFIGURATIONS.items():
        out = folder / label.replace(" ", "-")
        _run(
            ["-m", "benchmarks.configurations", "--worker", str(out), str(configuration.threads)], folder, configuration
        )
        default, audits = _audits(folder / "default"), _audits(out)
        rows[label] = _row(audits, configuration)
        _add_deviations(deviations, default, audits, label)
        _add_tensors(tensors, folder / "default", out, label)
    return {"configurations": rows, "metrics": dict(sorted(deviations.items())), "tensors": tensors}


def _study_text(name: str, recipe: str, grids: Sequence[tuple[str, float, str, str]]) -> str:
    rows = [
        GRID.format(methods=of, penalty=penalty, seeds=seeds, options=options) for of, penalty, seeds, options in grids
    ]
    return HEAD.format(name=name, recipe=recipe) + "".join(rows)


def _run(arguments: Sequence[str], folder: Path, configuration: Configuration = Configuration()) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **configuration.environment}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(arguments)} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        )


def work(out: Path, threads: int) -> None:
    """In a configuration's process: audit every study into `out`, and save each method's initial tensors and first steps."""
    from fa_registry.audits.selection import select_runs
    from fa_registry.evidence import remeasure
    from fa_registry.evidence.options import RemeasureOptions
    from fa_registry.protocol.engine import judge_all
    from fa_registry.protocol.rules import load_edition
    from fa_registry.studies.options import RunSelector
    from fa_registry.tracking.stores import open_tracker
    from fa_registry.training.devices import pinned_threads

    remeasure.pinned_threads = lambda count: pinned_threads(threads)
    tracker = open_tracker("", create=False)
    runs = [run for study in STUDIES for run in select_runs(tracker, RunSelector(study=f"{study}.toml")).runs]
    records = [
        found.record for found in remeasure.remeasure_all(tracker, runs, RemeasureOptions(jobs=1)) if found.record
    ]
    out.mkdir()
    audits = [jsonio.encode(audit) for audit in judge_all(records, load_edition("2026-12"))]
    (out / AUDITS).write_text(json.dumps(audits), encoding="utf-8")
    with pinned_threads(threads):
        for name in methods.CATALOG.names():
            _save_start(name, out)


def _save_start(method: str, out: Path) -> None:
    """Save what a run of the method draws and its state after the first steps, on the smallest network that supports it."""
    import torch

    from fa_registry.training.checkpoint import save_tensors
    from fa_registry.training.run_setup import build_setup
    from fa_registry.training.specs import parse_spec
    from fa_registry.training.trainer import Trainer

    architecture = "resmlp" if methods.CATALOG.get(method).card.supports("resmlp") else "mlp"
    options = {"d_hidden": 16, "num_blocks": 2}
    chosen = {"method": method, "architecture": architecture, "dataset": "digits", "seed": 1, "epochs": 1}
    trainer = Trainer(build_setup(parse_spec({**chosen, "architecture_options": options}), torch.device("cpu")))
    save_tensors(out / f"{method}.drawn.safetensors", trainer.state())
    trainer.run_epoch()
    save_tensors(out / f"{method}.early.safetensors", trainer.early.tensors)


def _audits(folder: Path) -> list[RunAudit]:
    held = json.loads((folder / AUDITS).read_text(encoding="utf-8"))
    return [jsonio.decode(RunAudit, audit) for audit in held]


def _row(audits: Sequence[RunAudit], configuration: Configuration) -> dict[str, Any]:
    states = [audit.record.integrity.state for audit in audits]
    return {
        "environment": dict(configuration.environment),
        "threads": configuration.threads,
        "fingerprint": audits[0].record.measurements.conventions["fingerprint"],
        "runs": len(audits),
        "states": {state: states.count(state) for state in sorted(set(states))},
        "findings": [
            f"{audit.record.name}: {'; '.join(audit.record.integrity.details)}"
            for audit in audits
            if audit.record.integrity.state != "verified"
        ],
        "verdicts": {f"{audit.record.name}{_size(audit)}": audit.verdict.label for audit in audits},
    }


def _size(audit: RunAudit) -> str:
    return f", penalty {audit.record.spec.penalty:g}" if audit.record.spec.penalty else ""


def _add_deviations(found: dict[str, Any], default: Sequence[RunAudit], here: Sequence[RunAudit], label: str) -> None:
    """Add the deviations of every metric from the default configuration's, where they are the largest so far."""
    before = {audit.record.run_id: audit.record for audit in default}
    for record in (audit.record for audit in here):
        for name, site, first, second in _values(before[record.run_id].measurements, record.measurements):
            at = f"{record.name}{'' if site is None else f', site {site}'}, {label}"
            deviations = _deviations(name, first, second)
            kept = found.setdefault(name.split("/")[0], {**dict.fromkeys(deviations, 0.0), "worst": [first, second]})
            for kind, deviation in deviations.items():
                if deviation > kept[kind]:
                    kept |= {kind: deviation, f"{kind}_at": at}
                    kept |= {"worst": [first, second]} if kind == "of_tolerance" else {}


def _deviations(name: str, first: float, second: float) -> dict[str, float]:
    """Return the absolute deviation, that relative to the larger value, and the share of the metric's tolerance."""
    absolute, size = abs(first - second), max(abs(first), abs(second))
    allowed = tolerance_of(name).allowed(first, second)
    return {"absolute": absolute, "relative": absolute / (size or 1.0), "of_tolerance": absolute / (allowed or 1.0)}


def _values(before: Measurements, after: Measurements) -> Iterator[tuple[str, int | None, float, float]]:
    """Yield (metric, site, value, value) of every reading that is a number; RuntimeError if it is one in one of them alone."""
    for name, site, first, second in pairs(before, after):
        if (first.value is None) != (second.value is None):
            raise RuntimeError(f"{name}[{site}]: {first} and {second}: a value in one configuration alone")
        if first.value is not None:
            yield name, site, first.value, second.value


def _add_tensors(found: dict[str, Any], default: Path, here: Path, label: str) -> None:
    """Add how far draws and first steps of each method lie from the default's, where they are the furthest so far.

    As an audit replays: the way begins at the tensors that this configuration draws.
    """
    from fa_registry.evidence.tensor_differences import deviation, relative_difference
    from fa_registry.training.checkpoint import load_tensors

    for method in methods.CATALOG.names():
        recorded, early = (load_tensors(default / f"{method}.{kind}.safetensors") for kind in ("drawn", "early"))
        drawn, reached = (load_tensors(here / f"{method}.{kind}.safetensors") for kind in ("drawn", "early"))
        values = {"draws": max(relative_difference(recorded[name], tensor) for name, tensor in drawn.items())}
        for part in ("network", "feedback"):
            names = [name for name in reached if name.startswith(f"{part}.")]
            error, moves = deviation(names, early, reached, drawn)
            values[f"first steps of {part}" if moves else f"resting {part}"] = error
        for kind, value in values.items():
            kept = found.setdefault(kind, {"furthest": 0.0})
            if value > kept["furthest"]:
                kept |= {"furthest": value, "at": f"{method}, {label}"}


def configuration_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the table that is printed."""
    columns = ("verified", "unverifiable", "mismatch")
    lines = [f"{'configuration':<22}{'fingerprint':<18}{'runs':>5}" + "".join(f"{state:>14}" for state in columns)]
    for label, row in found["configurations"].items():
        counts = "".join(f"{row['states'].get(state, 0):>14}" for state in columns)
        lines.append(f"{label:<22}{row['fingerprint']:<18}{row['runs']:>5}{counts}")
    lines += ["", "largest deviations"]
    for name, kept in found["metrics"].items():
        values = "  ".join(f"{kind} {kept[kind]:8.2g}" for kind in ("absolute", "relative", "of_tolerance"))
        lines.append(f"  {name:<28}{values}")
    lines += [
        f"  {kind:<28}{kept['furthest']:.2g} ({kept.get('at', 'none')})" for kind, kept in found["tensors"].items()
    ]
    return lines


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--worker"]:
        work(Path(arguments[1]), int(arguments[2]))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.configurations", description=__doc__.split("\n\n")[0])
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    found = measure()
    tell(found, configuration_lines(found), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
