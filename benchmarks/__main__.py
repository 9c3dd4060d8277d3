"""python -m benchmarks [--json]: the comparisons of a processor, in some minutes on two cores."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
import time

import torch

from benchmarks.data_path import measure_throughput, throughput_lines
from benchmarks.end_to_end import end_to_end_lines, measure_end_to_end
from benchmarks.overheads import Overhead, measure_overheads, overhead_lines
from benchmarks.registry_scale import SIZES, measure_sizes
from benchmarks.registry_scale import scale_lines as registry_lines
from benchmarks.step_time import measure_steps, step_lines
from benchmarks.store_scale import measure as measure_store
from benchmarks.store_scale import scale_lines as store_lines
from fa_registry.training.devices import pinned_threads

LONGER = {  # what takes minutes by itself
    "python -m benchmarks.registry_scale": "judging and rendering 2,500 and 10,000 made-up runs",
    "python -m benchmarks.store_scale": "every verb on stores of 2,000 and 10,000 runs",
    "python -m benchmarks.audit_again": "an audit that measures 125 trained runs again",
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measured comparisons, as ratios.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    with pinned_threads(1):
        steps = measure_steps()
        overheads = measure_overheads()
    throughput, whole = measure_throughput(), measure_end_to_end()
    registry, stores = measure_sizes(SIZES[:1]), [measure_store(SIZES[0])]
    if options.json:
        found = {
            "torch": torch.__version__,
            "machine": platform.machine(),
            "threads": 1,
            "step": {**dataclasses.asdict(steps), "target_met": steps.target_met},
            "epoch": {**dataclasses.asdict(throughput), "target_met": throughput.target_met},
            "end_to_end": dataclasses.asdict(whole),
            "overheads": [{**dataclasses.asdict(one), **shares(one)} for one in overheads],
            "registry": [dataclasses.asdict(one) for one in registry],
            "stores": [dataclasses.asdict(one) for one in stores],
        }
        print(json.dumps(found, indent=2, allow_nan=False))
        return
    tables = [step_lines(steps), throughput_lines(throughput), end_to_end_lines(whole)]
    tables += [*map(overhead_lines, overheads), registry_lines(registry), store_lines(stores)]
    for lines in tables:
        print("\n".join(lines), end="\n\n")
    print(
        "not in here, since it takes longer:", *(f"  {command:<40}{what}" for command, what in LONGER.items()), sep="\n"
    )
    print(
        f"\ntorch {torch.__version__}, {platform.machine()}, one thread, {time.perf_counter() - start:.0f} s; "
        "CPU time, ratios are medians over interleaved rounds (least to largest)"
    )


def shares(one: Overhead) -> dict[str, float]:
    """What an Overhead says of itself, which asdict leaves out."""
    return {name: getattr(one, name) for name in ("measuring_share", "diagnostics_share", "tracking_share")}


if __name__ == "__main__":
    main(sys.argv[1:])
