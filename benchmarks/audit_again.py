"""python -m benchmarks.audit_again [RUNS] [--json] [--record]: an audit that measures 125 runs again, on two cores.

The runs are really trained first, two at a time: an epoch each of resmlp D = 256, L = 4 on digits, 25 seeds of bp, fa, dfa, a
penalised dfa and their frozen control. --record keeps the answers in docs/measured/audit_again.json, from which
docs/performance.md is made.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.filled_study import study_text
from benchmarks.recording import FOLDER, add_options, tell
from benchmarks.timing import on_cores
from benchmarks.verb_cost import Costs, cost_of

MEASURED = FOLDER / "audit_again.json"
RUNS, CORES, WIDTH = 125, 2, 256
AGAIN, LOGGED = "audit, every run measured again", "audit of logged figures"
UNTAKEN = "the same, no training step taken again"
REPLAYED = 1.3  # of what an audit costs that takes none
TARGET = 60.0  # seconds by the clock
ARGUMENTS = ("--study", "study.toml", "--device", "cpu", "--exit-zero")
VERBS = {
    "study, one epoch a run": ("study", "study.toml", "--device", "cpu", "--jobs", str(CORES)),
    AGAIN: ("audit", *ARGUMENTS, "--jobs", str(CORES)),
    UNTAKEN: ("audit", *ARGUMENTS, "--jobs", str(CORES), "--replay", "off"),
    LOGGED: ("audit", *ARGUMENTS, "--trust-logged"),
}


def measure(runs: int = RUNS) -> Costs:
    """Train the runs, and audit them three times."""
    with tempfile.TemporaryDirectory(prefix="fa_registry-again-") as name, on_cores(CORES):
        folder = Path(name)
        (folder / "study.toml").write_text(study_text(runs, epochs=1, width=WIDTH), encoding="utf-8")
        return Costs(runs, {words: cost_of(verb, folder) for words, verb in VERBS.items()})


def again_lines(found: Costs) -> list[str]:
    """The table people read."""
    lines = [f"{found.runs} trained runs on two cores: CPU seconds, seconds by the clock, peak memory"]
    lines += [
        f"  {words:<42}{cost.cpu:9.1f} {cost.wall:6.1f} s{cost.peak:5.0f} M" for words, cost in found.costs.items()
    ]
    return lines + [f"  target {what}: {'met' if met else 'MISSED'} ({value})" for what, value, met in targets(found)]


def targets(found: Costs) -> list[tuple[str, str, bool]]:
    """(what is aimed at, what was found, whether it is met); no time of fewer runs than the aim is about.

    The ratio is of CPU seconds, which whoever else is at work on the machine changes least. Records of before it have none.
    """
    aims = []
    if UNTAKEN in found.costs:
        ratio = found.costs[AGAIN].cpu / found.costs[UNTAKEN].cpu
        aims.append((f"first steps taken again: ≤ {REPLAYED:g} × without", f"{ratio:.2f} ×", ratio <= REPLAYED))
    wall = found.costs[AGAIN].wall
    what = f"{AGAIN}: {RUNS} runs ≤ {TARGET:g} s by the clock"
    return aims + ([(what, f"{wall:.1f} s", wall <= TARGET)] if found.runs >= RUNS else [])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_again", description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", nargs="?", type=int, default=RUNS, metavar="RUNS", help=f"[{RUNS}]")
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    found = measure(options.runs)
    tell(dataclasses.asdict(found), again_lines(found), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
