"""python -m benchmarks [--json] [--one-thread]: the comparisons of a processor, in some minutes on two cores."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.end_to_end import end_to_end_lines, measure_end_to_end
from benchmarks.overheads import Overhead, measure_overheads, overhead_lines
from benchmarks.recording import processor, recorded_elsewhere
from benchmarks.step_time import measure_steps, step_lines
from benchmarks.store_scale import SIZES, scale_lines
from benchmarks.store_scale import measure as measure_store
from fa_registry.training.devices import pinned_threads

TARGET = 300.0  # seconds by the clock, for all
LONGER = {  # what takes minutes by itself
    "python -m benchmarks.store_scale": "every verb on stores of 2,000 and 10,000 runs",
}
HOW = """A step and its overheads are timed on one thread, in CPU seconds (tracking by the clock); whole epochs on two cores, by
the clock; commands and pages as their tables say. Ratios are medians over interleaved rounds (least to largest)."""
Tables = list[Sequence[str]]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measured comparisons, as ratios.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument(
        "--one-thread", action="store_true", help="only what has no command of its own: overheads of training"
    )
    options = parser.parse_args(arguments)
    print(*recorded_elsewhere(), sep="\n", file=sys.stderr)
    start = time.perf_counter()
    found, tables = one_thread()
    if not options.one_thread:
        for more, others in (steps(), two_cores()):
            found, tables = found | more, tables + others
    if options.json:
        versions = {"torch": torch.__version__, "machine": processor()}
        print(json.dumps(versions | found, indent=2, allow_nan=False))
        return
    for lines in tables:
        print("\n".join(lines), end="\n\n")
    print(f"torch {torch.__version__}, {processor()}", HOW, sep="\n")
    if not options.one_thread:
        print(
            "Not in here, since it takes longer:",
            *(f"  {command:<40}{what}" for command, what in LONGER.items()),
            sep="\n",
        )
        print(took(time.perf_counter() - start))


def one_thread() -> tuple[dict[str, Any], Tables]:
    """What measuring and tracking add: plain data, and tables."""
    with pinned_threads(1):
        overheads = measure_overheads()
    found = {"overheads": [{**dataclasses.asdict(one), **shares(one)} for one in overheads]}
    return found, list(map(overhead_lines, overheads))


def steps() -> tuple[dict[str, Any], Tables]:
    """A step beside others and its limit: plain data, and a table."""
    with pinned_threads(1):
        times = measure_steps()
    return {"step": dataclasses.asdict(times)}, [step_lines(times)]


def two_cores() -> tuple[dict[str, Any], Tables]:
    """Whole epochs, and the smallest store: plain data, and tables."""
    whole, stores = measure_end_to_end(), [measure_store(SIZES[0])]
    found = {
        "end_to_end": dataclasses.asdict(whole),
        "stores": [dataclasses.asdict(one) for one in stores],
    }
    return found, [end_to_end_lines(whole), scale_lines(stores)]


def shares(one: Overhead) -> dict[str, float]:
    """What an Overhead says of itself, which asdict leaves out."""
    return {name: getattr(one, name) for name in ("measuring_share", "diagnostics_share", "tracking_share")}


def took(seconds: float) -> str:
    """How long all of it took, and whether that is as short as it should be."""
    return f"{seconds:.0f} s by the clock, target ≤ {TARGET:g} s: {'met' if seconds <= TARGET else 'MISSED'}"


if __name__ == "__main__":
    main(sys.argv[1:])
