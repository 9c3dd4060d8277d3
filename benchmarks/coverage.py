"""python -m benchmarks.coverage [--record STORE]: how often D3's interval contains the true margin, in docs/calibration.md.

--record reads the runs in STORE, for example those of `fa-registry run digits`. The answers of each method minus those of its
frozen controls are the population, and their mean is the true margin. A study draws seeds and samples from it with replacement.
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
from fa_registry.protocol.answer_intervals import test_scores
from fa_registry.statistics import crossed_mean, t_interval
from fa_registry.tracking.reader import read_record
from fa_registry.tracking.stores import open_tracker

MEASURED = FOLDER / "coverage.json"
BEGIN = "<!-- measured: python -m benchmarks.coverage --record -->"
SEEDS, TRIALS, STEP = (3, 5, 10), 1000, 0.05
COLUMNS = ("data", "method", "seeds", "crossed", "below", "above", "power", "t")
HEADINGS = (
    "data",
    "method",
    "seeds",
    "contains the truth",
    "wholly above it",
    "wholly below it",
    "power at +5 pp",
    "t interval",
)


def populations(store: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield (data set, method, answers of each seed − those of its frozen control)."""
    tracker, answers = open_tracker(store), {}
    for run in tracker.search({"fa.kind": "run", "fa.status": "complete"}):
        record = read_record(tracker, run)
        answers[record.spec.dataset, record.spec.label, record.spec.seed] = test_scores(record.measurements).scores()
    for data, method in dict.fromkeys(key[:2] for key in sorted(answers)):
        if method != "frozen":
            seeds = [seed for *names, seed in answers if names == [data, method]]
            yield (
                data,
                method,
                np.array([answers[data, method, seed] - answers[data, "frozen", seed] for seed in seeds]),
            )


def coverage(population: np.ndarray, seeds: int) -> dict[str, float]:
    """Draw studies; the power is that of a limit STEP below the true margin."""
    draw, (count, samples), truth = np.random.default_rng(seeds), population.shape, population.mean()
    found: dict[str, list[bool]] = {name: [] for name in COLUMNS[3:]}
    for _ in range(TRIALS):
        table = population[draw.integers(count, size=seeds)][:, draw.integers(samples, size=samples)]
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
            {"data": data, "method": method, "seeds": seeds, **coverage(population, seeds)}
            for data, method, population in populations(sys.argv[2])
            for seeds in SEEDS
        ]
        MEASURED.write_text(json.dumps({**stamp(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), BEGIN, render(recorded(MEASURED))), encoding="utf-8")
