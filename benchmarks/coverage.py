"""python -m benchmarks.coverage [--record STORE …]: how often intervals of margin and Γ contain the truth, in docs/calibration.md.

--record reads the runs in each STORE, for example those of `fa-registry run digits`. The answers of each method minus those of its
frozen controls are a population, and their mean is the true margin; so are the cosines of its samples, with the mean Γ. A study
draws samples from the population with replacement, and the answers of a recorded seed to them. Three seeds are too few for a
population, so the mean of a seed is drawn from the normal distribution with their standard deviation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.calibration import PAGE
from benchmarks.recording import FOLDER, recorded, stamp
from benchmarks.tables import inserted
from fa_registry.metrics import HEADLINE_GAMMA
from fa_registry.protocol.answer_intervals import test_scores
from fa_registry.statistics import crossed_mean, t_interval
from fa_registry.tracking.reader import read_record
from fa_registry.tracking.stores import open_tracker

MEASURED = FOLDER / "coverage.json"
BEGIN = "<!-- measured: python -m benchmarks.coverage --record -->"
SEEDS, TRIALS, STEP = (3, 5, 10), 1000, 0.05
COLUMNS = ("data", "method", "of", "seeds", "crossed", "below", "above", "power", "t")
HEADINGS = (
    "data",
    "method",
    "of",
    "seeds",
    "contains the truth",
    "wholly above it",
    "wholly below it",
    "power at 0.05",
    "t interval",
)


def populations(store: str) -> Iterator[tuple[str, str, str, np.ndarray]]:
    """Yield (data set, method, "margin" or "Γ", values of each seed and sample); the margin is that over the frozen control."""
    tracker, found = open_tracker(store), {}
    for run in tracker.search({"fa.kind": "run", "fa.status": "complete"}):
        record = read_record(tracker, run)
        found[record.spec.dataset, record.spec.label, record.spec.seed] = record.measurements
    for data, method in dict.fromkeys(key[:2] for key in sorted(found)):
        if method.startswith(("frozen", "shallow")):
            continue
        seeds = [seed for *names, seed in found if names == [data, method]]
        runs, frozen = ([found[data, name, seed] for seed in seeds] for name in (method, "frozen"))
        answers = ([test_scores(one).scores() for one in side] for side in (runs, frozen))
        yield data, method, "margin", np.subtract(*map(np.array, answers))
        if all(HEADLINE_GAMMA in one.sample_scores for one in runs):
            yield data, method, "Γ", np.array([one.sample_scores[HEADLINE_GAMMA].scores() for one in runs])


def coverage(population: np.ndarray, seeds: int) -> dict[str, float]:
    """Draw studies; the power is that of a limit STEP below the truth."""
    draw, (count, samples), truth = np.random.default_rng(seeds), population.shape, population.mean()
    of_seeds = population.mean(axis=1)
    answers, deviation = population - of_seeds[:, None], of_seeds.std(ddof=1)
    found: dict[str, list[bool]] = {name: [] for name in COLUMNS[4:]}
    for _ in range(TRIALS):
        means = draw.normal(truth, deviation, size=(seeds, 1))
        table = means + answers[draw.integers(count, size=seeds)][:, draw.integers(samples, size=samples)]
        interval, student = crossed_mean(table).interval, t_interval(table.mean(axis=1))
        found["below"].append(interval.low > truth)
        found["above"].append(interval.high < truth)
        found["crossed"].append(interval.low <= truth <= interval.high)
        found["power"].append(interval.low > truth - STEP)
        found["t"].append(student.low <= truth <= student.high)
    return {name: float(np.mean(values)) for name, values in found.items()}


def render(measured: Mapping[str, Any]) -> str:
    lines = [
        f"Simulated {measured['date']} on {measured['machine']}, by `python -m benchmarks.coverage --record STORE`: "
        f"{TRIALS} studies a row.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|---" * len(HEADINGS) + "|",
    ]
    for row in measured["rows"]:
        cells = [f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for name in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        rows = [
            {"data": data, "method": method, "of": of, "seeds": seeds, **coverage(population, seeds)}
            for store in sys.argv[2:]
            for data, method, of, population in populations(store)
            for seeds in SEEDS
        ]
        MEASURED.write_text(json.dumps({**stamp(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), BEGIN, render(recorded(MEASURED))), encoding="utf-8")
