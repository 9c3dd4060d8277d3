"""python -m benchmarks.readme [--record]: the figures in README.

--record measures them (about ten minutes: a fresh environment, the digits study, a step and its overheads) and writes them to
docs/measured/; whole epochs have a record of their own (benchmarks.end_to_end --record). Without it the tables between README's
markers are only written again from there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import end_to_end
from benchmarks.overheads import MEASURING_TARGET, TRACKING_TARGET
from benchmarks.recording import FOLDER, ROOT, recorded, stamp
from benchmarks.step_time import TARGET
from benchmarks.tables import header, inserted, line, row, verdict
from benchmarks.timing import Spread
from fa_registry import jsonio
from fa_registry.protocol.grouping import groups
from fa_registry.records import AuditReport

MEASURED = FOLDER / "first_light.json"
BEGIN = "<!-- measured: python -m benchmarks.readme --record -->"
REPEATS = 5
SECONDS = {  # what is timed by the clock, and the aim
    "environment": 240,
    "study, audit and report": 180,
    "import fa_registry": 0.3,
    "fa-registry --help": 0.6,
}
RATIOS = {  # a recorded ratio: its words in README, and the aim
    "dfa / published": ("against the published loop", TARGET),
    "dfa / published on our layer": ("dfa / published on our layer: the order of the work, and a fused AdamW", None),
    "dfa / published on our layer, fused AdamW": (
        "dfa / published on our layer, fused AdamW: the order of the work alone",
        None,
    ),
}


def record() -> dict[str, Any]:
    """Run everything that README quotes; plain data, with machine class and date."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        environment = _seconds(lambda: _make_environment(work / "venv"))
        study = _seconds(lambda: _run([_tool("fa-registry"), "run", "digits", "--out", "reports"], work))
        report = jsonio.decode(AuditReport, json.loads((work / "reports" / "audit.json").read_text()))
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
        "edition": report.edition.name,
        "rows": [row(group) for group in groups(report)],
        "bench": bench,
    }


def render(measured: Mapping[str, Any]) -> str:
    """README's block: the audit table, then times and ratios."""
    step, overheads = measured["bench"]["step"], {one["name"]: one for one in measured["bench"]["overheads"]}
    lines = [
        f"Measured {measured['date']} on {measured['machine']}, by `python -m benchmarks.readme --record`.",
        "",
        *header(measured["edition"]),
        *map(line, measured["rows"]),
        "",
        "| what | measured | aim |",
        "|---|---|---|",
    ]
    for name, most in SECONDS.items():
        seconds = measured["seconds"][name]
        lines.append(line([name, f"{seconds:.3g} s", f"≤ {most:g} s: {verdict(seconds <= most)}"]))
    for compared, (words, most) in RATIOS.items():
        ratio = Spread(**step["ratio"][compared])
        aim = f"≤ {most:g}: {verdict(ratio.median <= most)}" if most else ""
        lines.append(line([f"DFA step, CIFAR-shaped, {words}", _spread(ratio), aim]))
    lines += _whole()
    for name, one in overheads.items():
        shares = {
            f"measuring every epoch, whole test set included, {name}, of training": (
                "measuring_share",
                MEASURING_TARGET,
            ),
            f"of which diagnostics (without test accuracy), {name}": ("diagnostics_share", None),
            f"tracking, {name}, of training": ("tracking_share", TRACKING_TARGET),
        }
        for words, (share, most) in shares.items():
            aim = f"≤ {most:.0%}: {verdict(one[share] <= most)}" if most else ""
            lines.append(line([words, f"{one[share]:.1%}", aim]))
    return "\n".join(lines)


def _whole() -> list[str]:
    """Rows of whole epochs, which have a record of their own; none where there is none."""
    kept, lines = recorded(end_to_end.MEASURED), []
    for words, one in end_to_end.EndToEnd.of(kept).ratio.items() if kept else ():
        least = end_to_end.COMPARED[words][2]
        aim = f"≥ {least:g}: {verdict(one.median >= least)}" if least else ""
        lines.append(line([f"CIFAR-shaped, two cores, {words}", _spread(one), aim]))
    return lines


def _spread(found: Spread) -> str:
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"


def _make_environment(folder: Path) -> None:
    _run([sys.executable, "-m", "venv", str(folder)], ROOT)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run([*pip, "--constraint", "constraints.txt", "--editable", ".[dev]"], ROOT)


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
        MEASURED.parent.mkdir(parents=True, exist_ok=True)
        MEASURED.write_text(json.dumps(record(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(inserted(readme.read_text(), BEGIN, render(json.loads(MEASURED.read_text()))), encoding="utf-8")
