"""python -m benchmarks.record: all figures of a processor that README and docs/performance.md show, measured and kept.

It takes three quarters of an hour here, half of it for 10,000 runs; nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.recording import ROOT

COMMANDS = (
    ("benchmarks.step_time", "--record"),
    ("benchmarks.end_to_end", "--record"),
    ("benchmarks.readme", "--record"),  # README shows the figures above too
    ("benchmarks.store_scale", "--record"),
    ("benchmarks.start_up", "--record"),
    ("benchmarks.performance",),
)


def main() -> None:
    for module, *options in COMMANDS:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", module, *options], cwd=ROOT, check=True)
        print(f"{module}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
