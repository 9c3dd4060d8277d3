"""python -m benchmarks.toy_lq [--record [STORE]]: how fast each credit turns to the exact costate, in projects/toy_lq/README.md.

--record runs the toy_lq study (in STORE it trains only what is missing there), reads each run's curve from its series, times a
step of every method, and keeps all that in docs/measured/ and as a picture.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import torch

from benchmarks.tables import inserted, line
from benchmarks.timing import interleaved
from fa_registry import provenance
from fa_registry.records import RunSpec
from fa_registry.statistics import summary
from fa_registry.studies.study import load_study
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.devices import pinned_threads
from fa_registry.training.run_setup import build_setup
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.coordination import finished_run

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs" / "measured" / "toy_lq.json"
PAGE = ROOT / "projects" / "toy_lq" / "README.md"
PICTURE = ROOT / "docs" / "images" / "toy_lq.png"
BEGIN = "<!-- measured: python -m benchmarks.toy_lq --record -->"
QUANTITY = "costate_cosine_mean"
PUBLISHED = {"dfa": ".001 ± .003", "state_bridge": ".945 ± .002", "credit_bridge": ".944 ± .001"}
COLOURS = ("#7a7a7a", "#1f6fb4", "#c4532d", "#8a4fb0")
SHOWN_STEPS = (300, 600, 1200, 2000, 4000, 8000)
UNTHINNED = "credit_bridge, unthinned"
ROUNDS, CALLS = 5, 3


def label(spec: RunSpec) -> str:
    """Method, and what it is told of a sample where that is not the published s = e."""
    told = spec.method_options.get("conditioning", "error")
    return spec.method if told == "error" else f"{spec.method}, s = y"


def record(store: str, seeds: str) -> dict[str, Any]:
    """Train what is missing and read the curves; plain data, with machine class and date. seeds: instead of the study's."""
    specs = load_study("toy_lq", {"seeds": [int(seed) for seed in seeds.split(",")]} if seeds else None).specs
    with tempfile.TemporaryDirectory() as folder:
        uri = store or f"sqlite:///{folder}/mlflow.db"
        words = ["study", "toy_lq", "--store", uri, *(["--seeds", seeds] if seeds else [])]
        subprocess.run([str(Path(sys.executable).parent / "fa-registry"), *words], cwd=folder, check=True)
        tracker = MlflowTracker(uri, schema.EXPERIMENT)
        curves = [curve(tracker, spec) for spec in specs if spec.method in PUBLISHED]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{provenance.hardware()['cpu']}, {os.cpu_count()} cores",
        "curves": curves,
        "milliseconds": step_times(timed(specs)),
    }


def curve(tracker: MlflowTracker, spec: RunSpec) -> dict[str, Any]:
    """Label, seed, and (steps done, costate cosine) after every epoch."""
    path = tracker.artifact(finished_run(tracker, spec).run_id, schema.SERIES)
    rows = pq.read_table(path, filters=[("quantity", "==", QUANTITY)]).to_pylist()
    steps = steps_per_epoch(spec)
    return {"label": label(spec), "seed": spec.seed, "points": [(row["epoch"] * steps, row["value"]) for row in rows]}


def steps_per_epoch(spec: RunSpec) -> int:
    samples = len(build_setup(spec, torch.device("cpu")).splits.train_labels)
    return -(-samples // spec.recipe.batch_size)


def timed(specs: Iterable[RunSpec]) -> dict[str, RunSpec]:
    """Every credit of the table, and credit_bridge as it would be without thinning."""
    found = {label(spec): spec for spec in specs if spec.method in PUBLISHED}
    bridge = found["credit_bridge"]
    options = {**bridge.method_options, "thinning": 1}
    return {**found, UNTHINNED: dataclasses.replace(bridge, method_options=options)}


def step_times(specs: Mapping[str, RunSpec]) -> dict[str, float]:
    """CPU milliseconds of a training step on one thread, median over interleaved rounds."""
    with pinned_threads(1):
        steps = {}
        for name, spec in specs.items():
            trainer = Trainer(build_setup(spec, torch.device("cpu")))
            batch = slice(0, spec.recipe.batch_size)
            images, labels = trainer.setup.splits.train_images[batch], trainer.setup.splits.train_labels[batch]
            steps[name] = lambda trainer=trainer, images=images, labels=labels: trainer.step(images, labels)
        seconds = interleaved(steps, ROUNDS, CALLS)
    return {name: 1e3 * median(values) for name, values in seconds.items()}


def render(measured: Mapping[str, Any]) -> str:
    """The cosine after so many steps, mean over sites and seeds, and at the end with its interval."""
    seeds = len({one["seed"] for one in measured["curves"]})
    lines = [
        f"Measured {measured['date']} on {measured['machine']}, by `python -m benchmarks.toy_lq --record`; mean over sites and "
        f"{seeds} seed{'s' if seeds > 1 else ''}. A step: batch 256, CPU time on one thread.",
        "",
        line(["credit", *(f"{steps:,} steps" for steps in SHOWN_STEPS), "published", "ms a step"]),
        "|---" * (len(SHOWN_STEPS) + 3) + "|",
    ]
    for name in dict.fromkeys(one["label"] for one in measured["curves"]):
        curves = [one["points"] for one in measured["curves"] if one["label"] == name]
        cells = [_cell([_at(points, steps) for points in curves], steps == SHOWN_STEPS[-1]) for steps in SHOWN_STEPS]
        lines.append(line([name, *cells, PUBLISHED.get(name, ""), f"{measured['milliseconds'][name]:.1f}"]))
    times = measured["milliseconds"]
    lines += [
        "",
        f"Taught at every site by every sample (`thinning = 1`), a step of credit_bridge takes {times[UNTHINNED]:.1f} ms, "
        f"{times[UNTHINNED] / times['credit_bridge']:.1f} times as long.",
    ]
    return "\n".join([*lines, "", f"![Costate cosine by step](../../docs/images/{PICTURE.name})"])


def _at(points: list[list[float]], steps: int) -> float:
    return next(cosine for done, cosine in points if done >= steps)


def _cell(values: list[float], interval: bool) -> str:
    found = summary(values)
    known = interval and found.low is not None
    return f"{found.mean:.3f}" + (f" [{found.low:.3f}, {found.high:.3f}]" if known else "")


def draw(measured: Mapping[str, Any]) -> None:
    """One line a run, the published figure of both bridges as dashes."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    names = list(dict.fromkeys(one["label"] for one in measured["curves"]))
    for one in measured["curves"]:
        steps, cosines = zip(*one["points"], strict=True)
        axes.plot(steps, cosines, color=COLOURS[names.index(one["label"])], linewidth=1.2)
    for name, colour in zip(names, COLOURS, strict=False):
        axes.plot([], [], color=colour, label=name)
    axes.axhline(0.944, color="#7a7a7a", linewidth=0.8, linestyle="--", label="published, both bridges")
    axes.set(xlabel="training step", ylabel="cosine of credit and exact costate", ylim=(-0.1, 1.0))
    axes.legend(frameon=False, loc="center right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=140)
    pyplot.close(figure)


if __name__ == "__main__":
    words = sys.argv[1:]
    if "--record" in words:
        named = [word for word in words if "=" not in word and not word.startswith("--")]
        chosen = next((word.removeprefix("seeds=") for word in words if word.startswith("seeds=")), "")
        found = record(named[0] if named else "", chosen)
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        draw(found)
    text = inserted(PAGE.read_text(encoding="utf-8"), BEGIN, render(json.loads(MEASURED.read_text(encoding="utf-8"))))
    PAGE.write_text(text, encoding="utf-8")
