"""Python code in a separate process, with a bound on its memory: what a hostile file costs is measured there."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CEILING = 6 * 2**30  # bytes of addresses: a test that fails does not take the machine's memory
HEAD = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({CEILING}, {CEILING}))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
"""
TAIL = """
print(peak() - before)
"""


@dataclass(frozen=True)
class Ended:
    """How such a process ended: what it printed, and by how many bytes its largest memory grew in `code`."""

    printed: str
    grown: int


def run_limited(setup: str, code: str) -> Ended:
    """Run `setup`, then `code`, whose memory is measured. AssertionError if the process does not end by itself.

    Args:
        setup: imports and everything else that is not to be measured.
        code: prints what the test asks for.
    """
    text = f"{HEAD}\n{setup}\nbefore = peak()\n{code}\n{TAIL}"
    ended = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr[-2_000:]
    printed, _, grown = ended.stdout.rstrip("\n").rpartition("\n")
    return Ended(printed, int(grown))
