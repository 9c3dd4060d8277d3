"""Every verb on a store of many finished runs: CPU seconds of whole commands, imports and pages included.

python -m benchmarks.store_scale [RUNS …] [--json] [--record]: 125 and 2,000 runs unless told otherwise. They are copies of runs
that were trained (benchmarks/filled_store.py); filling the store takes a tenth of a second each and is not timed. --record keeps
the answers in docs/measured/store_scale.json, from which docs/performance.md is made.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.filled_store import fill
from fa_registry import provenance

MEASURED = Path(__file__).resolve().parent.parent / "docs" / "measured" / "store_scale.json"
SIZES = (125, 2000)
ARGUMENTS = ("--study", "study.toml", "--device", "cpu", "--exit-zero")
VERBS = {
    "study, nothing to train": ("study", "study.toml", "--device", "cpu"),
    "optimize": ("optimize",),
    "audit of logged figures, with all pages": ("audit", *ARGUMENTS, "--trust-logged"),
    "report from the store": ("report", "--study", "filled", "--out", "again"),
}


@dataclasses.dataclass(frozen=True)
class StoreScale:
    """seconds: CPU seconds, by what was done."""

    runs: int
    seconds: dict[str, float]


def measure(runs: int) -> StoreScale:
    """Fill a store and go through the verbs, one after another."""
    with tempfile.TemporaryDirectory(prefix="fa_registry-store-") as name:
        folder = Path(name)
        fill(folder, runs)
        return StoreScale(runs, {words: _cpu(verb, folder) for words, verb in VERBS.items()})


def _cpu(arguments: Sequence[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "fa_registry", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"fa-registry {' '.join(arguments)}: exit {ended.returncode}\n{ended.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scale_lines(found: Sequence[StoreScale]) -> list[str]:
    """The table people read; the last column is what every run beyond the smallest store's adds."""
    lines = ["whole commands on a sqlite store, CPU seconds"]
    lines.append(f"  {'':<42}" + "".join(f"{one.runs:>10,} runs" for one in found) + "   a further run")
    for words in VERBS:
        each = slope(found, words)
        further = f"{1e3 * each:13.1f} ms" if each is not None else ""
        lines.append(f"  {words:<42}" + "".join(f"{one.seconds[words]:13.1f} s" for one in found) + further)
    return lines


def slope(found: Sequence[StoreScale], words: str) -> float | None:
    """Seconds a further run, from the smallest to the largest store; None where there is one size."""
    low, high = found[0], found[-1]
    return (high.seconds[words] - low.seconds[words]) / (high.runs - low.runs) if high.runs > low.runs else None


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_scale", description=__doc__.split("\n\n")[0])
    parser.add_argument("sizes", nargs="*", type=int, metavar="RUNS", help=f"[{' '.join(map(str, SIZES))}]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--record", action="store_true", help=f"keep the answers in {MEASURED.name}")
    options = parser.parse_args(arguments)
    found = [measure(runs) for runs in options.sizes or SIZES]
    plain = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{provenance.hardware()['cpu']}, {os.cpu_count()} cores",
        "sizes": [dataclasses.asdict(one) for one in found],
    }
    if options.record:
        MEASURED.write_text(json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(json.dumps(plain, indent=2, allow_nan=False) if options.json else "\n".join(scale_lines(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
