"""What a verb costs: CPU seconds, seconds by the clock and peak memory of a whole command, imports and pages included.

python -m benchmarks.verb_cost VERB [ARGUMENT …]: runs it in the current folder; its last line is a JSON object. The command is
started from a process that has imported next to nothing: Linux counts what its parent held at that moment as a process's own peak.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Cost:
    """cpu: seconds of all its processes. wall: seconds by the clock. peak: MiB of its largest process."""

    cpu: float
    wall: float
    peak: float


@dataclass(frozen=True)
class Costs:
    """Of several commands in a store of so many runs, by what was done."""

    runs: int
    costs: Mapping[str, Cost]

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Costs:
        """From what --record kept."""
        return cls(kept["runs"], {words: Cost(**one) for words, one in kept["costs"].items()})


def cost_of(arguments: Sequence[str], folder: Path) -> Cost:
    """Of `fa-registry ARGUMENTS` in this folder and its own store; SystemExit where it fails."""
    return answer_of(arguments, folder, {})[0]


def answer_of(arguments: Sequence[str], folder: Path, place: Mapping[str, str]) -> tuple[Cost, str]:
    """The same, and what the command prints. place: environment, such as that of a user of a server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**kept, "PYTHONPATH": path, **place}
    command = [sys.executable, "-m", "benchmarks.verb_cost", *arguments]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"fa-registry {' '.join(arguments)}: exit {ended.returncode}\n{ended.stderr}")
    answer, _, cost = ended.stdout.rstrip().rpartition("\n")
    return Cost(**json.loads(cost)), answer


def _adopt_what_is_left() -> None:
    """A process counts what the children took that it waited for. The process from which Python starts workers outlives the
    command, so its parent would not count it: 125 runs that two workers trained took 4 CPU seconds. From here on it becomes a
    child of this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(arguments: Sequence[str]) -> int:
    _adopt_what_is_left()
    start = time.perf_counter()
    code = subprocess.call([sys.executable, "-m", "fa_registry", *arguments])
    wall = time.perf_counter() - start
    with contextlib.suppress(ChildProcessError):  # until there is none
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps(asdict(Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024))))  # Linux counts in KiB
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
