"""Judging and rendering a registry of logged runs: seconds a record and peak memory, each size in a process of its own.

python -m benchmarks.registry_scale [SIZE ...] [--json] [--record]: 125 runs in 17 settings, then 2,500 and 10,000.
The runs are made up (benchmarks/synthetic.py); reading them from a store is not timed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.recording import FOLDER, ROOT, add_options, tell
from benchmarks.synthetic import registry
from benchmarks.timing import cpu_seconds
from fa_registry.protocol.engine import judge_all, second_opinions
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport, RunRecord
from fa_registry.reporting.render import render_report

SIZES = (125, 2500, 10000)
LEADING, OTHERS = "2026-11", ("2026-05", "2026-04")
SECONDS_TARGET, INDEX_TARGET = 5.0, 1_000_000  # for 125 runs: judging and rendering; bytes of index.html
RATIO_TARGET, MEMORY_TARGET = 1.2, 1024.0  # of the two largest sizes' seconds a record; MiB
MEASURED = FOLDER / "registry_scale.json"
WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)  # the forms of many are written by copies of the process


@dataclass(frozen=True)
class Scale:
    """One size. judging, rendering: seconds; cpu: of both, what they take when nobody else wants the core. peak: MiB."""

    records: int
    settings: int
    forms: int
    judging: float
    rendering: float
    cpu: float
    peak: float
    index_bytes: int
    bytes_written: int

    @property
    def milliseconds_a_record(self) -> float:
        """CPU time: on a shared machine the clock tells of the neighbours."""
        return 1e3 * self.cpu / self.records


def measure_sizes(sizes: Sequence[int] = SIZES) -> list[Scale]:
    """Each size in a fresh process, so that its peak memory is its own."""
    return [_in_a_process(size) for size in sizes]


def measure(count: int) -> Scale:
    """Judge and render `count` made-up runs, in this process and its copies."""
    records = list(registry(count))
    start, busy = time.perf_counter(), cpu_seconds()
    report = _judged(records)
    judged = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fa_registry-scale-") as folder:
        pages = render_report(report, Path(folder))
        rendered, busy = time.perf_counter(), cpu_seconds() - busy
        sizes = {page.relative_to(folder).as_posix(): page.stat().st_size for page in pages}
    return Scale(
        records=count,
        settings=len({record.setting for record in records}),
        forms=sum(not group.control for group in groups(report)),
        judging=judged - start,
        rendering=rendered - judged,
        cpu=busy,
        peak=max(resource.getrusage(who).ru_maxrss for who in WHO) / 1024,  # Linux counts in KiB
        index_bytes=sizes["index.html"],
        bytes_written=sum(sizes.values()),
    )


def _judged(records: Sequence[RunRecord]) -> AuditReport:
    edition = load_edition(LEADING)
    opinions = second_opinions(records, [load_edition(name) for name in OTHERS])
    return AuditReport(
        "Made-up registry", "benchmarks.synthetic", edition.reference, judge_all(records, edition), opinions=opinions
    )


def _in_a_process(count: int) -> Scale:
    command = [sys.executable, "-m", "benchmarks.registry_scale", "--one", str(count)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return Scale(**json.loads(done.stdout))


def scale_lines(found: Sequence[Scale]) -> list[str]:
    """The table people read, and whether the targets are met."""
    lines = [f"judging by {LEADING} with {len(OTHERS)} second opinions, and rendering; made-up runs"]
    lines += [line for one in found for line in _size_lines(one)]
    return lines + [f"  target {what}: {'met' if met else 'MISSED'} ({value})" for what, value, met in targets(found)]


def targets(found: Sequence[Scale]) -> list[tuple[str, str, bool]]:
    """(what is aimed at, what was found, whether it is met), as far as these sizes can tell."""
    first, last, judged = found[0], found[-1], []
    if first.records == SIZES[0]:
        what = f"{first.records} runs ≤ {SECONDS_TARGET:g} s of CPU"
        judged.append((what, f"{first.cpu:.1f} s", first.cpu <= SECONDS_TARGET))
        what = f"index of {first.records} runs ≤ {INDEX_TARGET:,} bytes"
        judged.append((what, f"{first.index_bytes:,}", first.index_bytes <= INDEX_TARGET))
    if len(found) > 1:
        before = found[-2]
        ratio = last.milliseconds_a_record / before.milliseconds_a_record
        what = f"time a record, {last.records:,} / {before.records:,}, ≤ {RATIO_TARGET:g}"
        judged.append((what, f"{ratio:.2f}", ratio <= RATIO_TARGET))
    what = f"peak memory ≤ {MEMORY_TARGET:g} MiB"
    return [*judged, (what, f"{last.peak:.0f} MiB", last.peak <= MEMORY_TARGET)]


def _size_lines(one: Scale) -> list[str]:
    return [
        f"  {one.records:,} runs, {one.settings:,} settings, {one.forms:,} forms:"
        f" {one.milliseconds_a_record:.2f} ms of CPU a record",
        f"    judging {one.judging:.2f} s, rendering {one.rendering:.2f} s by the clock, CPU {one.cpu:.2f} s together;"
        f" peak {one.peak:.0f} MiB; index {one.index_bytes / 1e6:.2f} MB, everything {one.bytes_written / 1e6:.0f} MB",
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registry_scale", description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, metavar="SIZE", help="how many runs, smallest first")
    add_options(parser, MEASURED)
    parser.add_argument("--one", type=int, metavar="SIZE", help="measure one size in this process and print its JSON")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(asdict(measure(options.one)), allow_nan=False))
        return
    found = measure_sizes(options.sizes or SIZES)
    tell({"sizes": [asdict(one) for one in found]}, scale_lines(found), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
