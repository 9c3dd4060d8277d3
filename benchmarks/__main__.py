"""python -m benchmarks [--json]: the whole comparison in about a minute and a half."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
import time

import torch

from benchmarks.data_path import measure_throughput, throughput_lines
from benchmarks.overheads import measure_overheads, overhead_lines
from benchmarks.registry_scale import SIZES, measure_sizes, scale_lines
from benchmarks.step_time import measure_steps, step_lines
from fa_registry.training.devices import pinned_threads


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measured comparisons, as ratios.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    with pinned_threads(1):
        steps = measure_steps()
        overheads = measure_overheads()
    throughput = measure_throughput()
    scales = measure_sizes(SIZES[:1])  # the large ones take minutes: python -m benchmarks.registry_scale
    if options.json:
        shares = [
            {
                **dataclasses.asdict(one),
                "measuring_share": one.measuring_share,
                "diagnostics_share": one.diagnostics_share,
                "tracking_share": one.tracking_share,
            }
            for one in overheads
        ]
        found = {
            "torch": torch.__version__,
            "machine": platform.machine(),
            "threads": 1,
            "step": {**dataclasses.asdict(steps), "target_met": steps.target_met},
            "epoch": {**dataclasses.asdict(throughput), "target_met": throughput.target_met},
            "overheads": shares,
            "registry": [dataclasses.asdict(one) for one in scales],
        }
        print(json.dumps(found, indent=2, allow_nan=False))
        return
    for lines in (
        step_lines(steps),
        throughput_lines(throughput),
        *map(overhead_lines, overheads),
        scale_lines(scales),
    ):
        print("\n".join(lines), end="\n\n")
    print(
        f"torch {torch.__version__}, {platform.machine()}, one thread, {time.perf_counter() - start:.0f} s; "
        "CPU time, ratios are medians over interleaved rounds (least to largest)"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
