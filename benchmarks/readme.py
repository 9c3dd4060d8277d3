"""python -m benchmarks.readme [--record [REPORTS]]: the digits study and its cost, in projects/digits/README.md.

--record measures them (about ten minutes: a fresh environment, the digits study, a step and its overheads) and writes them to
docs/measured/; whole epochs and large stores have records of their own. With REPORTS, the folder that `fa-registry run digits`
wrote on this machine, only the table of the study is recorded. Without --record the tables are only written again.
Every aim, met or missed, stands in docs/performance.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import end_to_end, store_scale
from benchmarks.recording import FOLDER, ROOT, recorded, stamp
from benchmarks.tables import audit_of, header, inserted, line, row
from benchmarks.verb_cost import Costs
from fa_registry.protocol.grouping import groups

MEASURED = FOLDER / "first_light.json"
BEGIN = "<!-- measured: python -m benchmarks.readme --record -->"
REPEATS = 5
DEMO, DEMO_TARGET = ("environment", "study, audit and report"), 240  # seconds of both on two cores
SECONDS = {  # what is timed by the clock, and the aim
    "import fa_registry": 0.3,
    "fa-registry --help": 0.6,
}


def record() -> dict[str, Any]:
    """Run everything that the page of the digits study quotes; plain data, with machine class and date."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        environment = _seconds(lambda: _make_environment(work / "venv"))
        study = _seconds(lambda: _run([_tool("fa-registry"), "run", "digits", "--out", "reports"], work))
        table = study_table(work / "reports")
        bench = json.loads(_run([sys.executable, "-m", "benchmarks", "--one-thread", "--json"], ROOT))
    return {
        **stamp(),
        "seconds": {
            "environment": environment,
            "study, audit and report": study,
            "import fa_registry": _least([sys.executable, "-c", "import fa_registry"])
            - _least([sys.executable, "-c", ""]),
            "fa-registry --help": _least([_tool("fa-registry"), "--help"]),
        },
        "study": table,
        "bench": bench,
    }


def study_table(reports: Path) -> dict[str, Any]:
    """Return the table of the digits study, with machine class and date."""
    report = audit_of(reports)
    return {**stamp(), "edition": report.edition.name, "rows": [row(group) for group in groups(report)]}


def render(measured: Mapping[str, Any]) -> str:
    """Return the block of the study's page: its audit table, and what it takes."""
    table = measured["study"]
    costs = ["| what it takes | measured | by, on, at |", "|---|---|---|", *map(line, _decisive(measured))]
    where = f"Measured {table['date']} on {table['machine']}, by `python -m benchmarks.readme --record`."
    return "\n".join([where, "", *header(table["edition"]), *map(line, table["rows"]), "", *costs])


def _decisive(measured: Mapping[str, Any]) -> Iterator[list[str]]:
    """The figures that a user decides by, as far as they are recorded: what, how much, the command that measures it."""
    ours = _by("readme", measured)
    for name in DEMO:
        yield [f"digits: {name}", f"{measured['seconds'][name]:.0f} s", ours]
    if kept := recorded(end_to_end.MEASURED):
        times = end_to_end.EndToEnd.of(kept).ratio[end_to_end.THROUGHPUT]
        words = f"{times.median:.1f} ({times.low:.1f} to {times.high:.1f}) × the runs an hour"
        yield ["CIFAR's shape, two cores, compared with the published loop", words, _by("end_to_end", kept)]
    shares = {share["name"]: share for share in measured["bench"]["overheads"]}["cifar-shaped"]
    words = f"{shares['measuring_share'] + shares['tracking_share']:.1%} of training"
    yield ["CIFAR's shape: measuring every epoch, and tracking", words, ours]
    if kept := recorded(store_scale.MEASURED):
        costs = Costs.of(kept["sizes"][0])
        words = f"{costs.costs[store_scale.AUDIT].wall:.0f} s"
        yield [f"audit of {costs.runs} logged runs, with all pages", words, _by("store_scale", kept)]


def _by(module: str, kept: Mapping[str, Any]) -> str:
    return f"`benchmarks.{module}`, {kept['machine']}, {kept['date']}"


def _make_environment(folder: Path) -> None:
    _run([sys.executable, "-m", "venv", str(folder)], ROOT)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run([*pip, "--constraint", "constraints.txt", "--editable", "."], ROOT)  # as make demo does


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _run(command: Sequence[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _least(command: Sequence[str]) -> float:
    return min(_seconds(lambda: _run(command, ROOT)) for _ in range(REPEATS))


if __name__ == "__main__":
    if "--record" in sys.argv[1:]:
        reports = sys.argv[2:]
        new = {**recorded(MEASURED), "study": study_table(Path(reports[0]))} if reports else record()
        MEASURED.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    page = ROOT / "projects" / "digits" / "README.md"
    page.write_text(inserted(page.read_text(encoding="utf-8"), BEGIN, render(kept)), encoding="utf-8")
