"""Everything that breaks a registry; one line a kind: tried, lost, crashed. `make stress` calls it.

    python -m tests.stress [--seed 1] [--share 0.1]

Each kind is a module here and can be called by itself; --share takes a part of the usual numbers: --share 0.3 is a quick look.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# module → option of how much, and how much `make stress` takes of it; the longest first, as many at a time as there are cores.
KINDS = {
    "killed_processes": ("--kills", 50),
    "malformed": ("--inputs", 100_000),
    "disk_faults": ("--faults", 40),
    "bit_flips": ("--flips", 1000),
    "server_outage": ("--kills", 5),
    "race_conditions": ("--runs", 50),
    "workers": ("--rounds", 1),
}
SEEDED = ("killed_processes", "bit_flips", "disk_faults", "malformed")  # the order of races is the machine's


def main(arguments: list[str]) -> int:
    """Every kind in a separate process; 1 where one of them has lost something or crashed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="the same again")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual numbers")
    asked = parser.parse_args(arguments)
    print(f"seed {asked.seed}", flush=True)

    def take(kind: str) -> int:
        option, usual = KINDS[kind]
        command = [sys.executable, "-m", f"tests.stress.{kind}", option, str(max(1, round(usual * asked.share)))]
        command += ["--seed", str(asked.seed)] if kind in SEEDED else []
        command += ["--processes", "1"] if kind == "malformed" else []
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        print(f"== {kind}\n{done.stdout}", end="", flush=True)
        return done.returncode

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as lanes:
        return int(any(list(lanes.map(take, KINDS))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
