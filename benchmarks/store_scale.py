"""Every verb on a store of many finished runs, on two cores: CPU seconds, seconds by the clock, peak memory of whole commands.

python -m benchmarks.store_scale [RUNS …] [--json] [--record]: 125, 2,000 and 10,000 runs by default. They are copies of
runs that were trained (benchmarks/filled_store.py); filling the store takes some milliseconds a run and is not timed. 10,000 runs
need 5 GB of disk while they are measured. --record keeps the answers in docs/measured/store_scale.json, from which
docs/performance.md is made.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.filled_study import RATE
from benchmarks.recording import FOLDER, ROOT, add_options, tell
from benchmarks.timing import on_cores
from benchmarks.verb_cost import Cost, Costs, cost_of

MEASURED = FOLDER / "store_scale.json"
SIZES, CORES = (125, 2000, 10000), 2
STUDY = ("--study", "study.toml", "--device", "cpu")
RUN = "the first characters of a run's id"
AUDIT = "audit of logged figures, with all pages"
VERBS = {
    "study, nothing to train": ("study", "study.toml", "--device", "cpu"),
    "optimize": ("optimize-store",),
    "list of studies": ("list", "studies"),
    "show a run, by the first characters of its id": ("show", RUN),
    "compare two methods in a setting, 25 seeds": (
        "compare",
        "dfa",
        "bp",
        *STUDY,
        "--setting",
        f"learning_rate={RATE:g}",
    ),
    AUDIT: ("audit", *STUDY, "--exit-zero", "--trust-logged"),
    "report from the store": ("report", "--study", "filled", "--out", "again"),
}
FURTHER_TARGET, CPU_TARGET = 0.012, 150  # CPU seconds of the audit: of a further run, of SIZES[-1] runs
MEMORY_TARGET = 1280  # MiB: peak memory of the audit of SIZES[-1] runs


def measure(runs: int) -> Costs:
    """Fill a store and go through the verbs, one after another."""
    with tempfile.TemporaryDirectory(prefix="fa_registry-store-") as name, on_cores(CORES):
        folder = Path(name)
        filled = [sys.executable, "-m", "benchmarks.filled_store", str(folder), str(runs)]
        subprocess.run(filled, cwd=ROOT, check=True, capture_output=True)
        one = _a_run(folder)
        costs = {
            words: cost_of([one if word == RUN else word for word in verb], folder) for words, verb in VERBS.items()
        }
        return Costs(runs, costs)


def _a_run(folder: Path) -> str:
    """As tables print ids, and people type them."""
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        return connection.execute("SELECT substr(run_uuid, 1, 8) FROM runs ORDER BY name LIMIT 1").fetchone()[0]


def scale_lines(found: Sequence[Costs]) -> list[str]:
    """The table people read; the last column is what every run beyond the smallest store's adds."""
    lines = ["whole commands on a sqlite store, two cores: CPU seconds, seconds by the clock, peak memory"]
    lines.append(f"  {'':<46}" + "".join(f"{one.runs:>20,} runs" for one in found) + "   a further run")
    for words in VERBS:
        cells = "".join(f"{cost.cpu:9.1f} {cost.wall:6.1f} s{cost.peak:5.0f} M" for cost in _row(found, words))
        each = slope(found, words)
        further = f"{1e3 * each:13.1f} ms" if each is not None else ""
        lines.append(f"  {words:<46}{cells}{further}")
    return lines + [f"  target {what}: {'met' if met else 'MISSED'} ({value})" for what, value, met in targets(found)]


def targets(found: Sequence[Costs]) -> list[tuple[str, str, bool]]:
    """(what is aimed at, what was found, whether it is met), as far as these sizes can tell."""
    judged = []
    if (further := slope(found, AUDIT)) is not None:
        what = f"audit of a further logged run ≤ {1e3 * FURTHER_TARGET:g} ms of CPU"
        judged.append((what, f"{1e3 * further:.1f} ms", further <= FURTHER_TARGET))
    if found[-1].runs == SIZES[-1]:
        cpu, peak = found[-1].costs[AUDIT].cpu, found[-1].costs[AUDIT].peak
        what = f"audit of {SIZES[-1]:,} logged runs ≤ {CPU_TARGET} CPU seconds"
        judged.append((what, f"{cpu:.1f} s", cpu <= CPU_TARGET))
        what = f"peak memory of the audit of {SIZES[-1]:,} logged runs ≤ {MEMORY_TARGET:,} MiB"
        judged.append((what, f"{peak:,.0f} MiB", peak <= MEMORY_TARGET))
    return judged


def slope(found: Sequence[Costs], words: str) -> float | None:
    """CPU seconds a further run, from the smallest to the largest store; None where there is one size."""
    low, high = _row(found, words)[0], _row(found, words)[-1]
    more = found[-1].runs - found[0].runs
    return max(0.0, high.cpu - low.cpu) / more if more > 0 else None


def _row(found: Sequence[Costs], words: str) -> list[Cost]:
    return [one.costs[words] for one in found]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_scale", description=__doc__.split("\n\n")[0])
    parser.add_argument("sizes", nargs="*", type=int, metavar="RUNS", help=f"[{' '.join(map(str, SIZES))}]")
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    found = [measure(runs) for runs in options.sizes or SIZES]
    tell({"sizes": [dataclasses.asdict(one) for one in found]}, scale_lines(found), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
