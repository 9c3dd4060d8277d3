"""python -m benchmarks.architectures [--record [STORE]]: the table and the picture in projects/architectures/README.md.

--record trains the study (in STORE only what is missing there), asks `fa-registry analyse` what each method does on every network
and when D1 first fires, by the published edition, and keeps the answers in docs/measured/; without it the table is only
written again from there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.tables import inserted, line
from fa_registry import provenance

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs" / "measured" / "architectures.json"
PAGE = ROOT / "projects" / "architectures" / "README.md"
PICTURE = ROOT / "docs" / "images" / "architectures.png"
BEGIN = "<!-- measured: python -m benchmarks.architectures --record -->"
STUDY, EDITION = "architectures", "2026-05"
NETWORKS, FIRES = "cross-architecture", "first-fire"
COLUMNS = (
    "method",
    "setting",
    "accuracy",
    "frozen",
    "max growth",
    "‖g_L‖ (mean CE)",
    "Γ deep mean",
    "D1 fires at",
    "verdict",
)


def record(store: str) -> dict[str, Any]:
    """Plain data, with machine class and date; the picture goes to its place."""
    with tempfile.TemporaryDirectory() as folder:
        place = ["--store", store or f"sqlite:///{folder}/mlflow.db"]
        _run(["study", STUDY, "--jobs", "2", *place], folder)
        for analysis in (NETWORKS, FIRES):
            _run(["analyse", analysis, "--study", STUDY, "--edition", EDITION, "--out", "found", *place], folder)
        found = Path(folder) / "found"
        tables = {name: json.loads((found / f"{name}.json").read_text())["tables"][0] for name in (NETWORKS, FIRES)}
        shutil.copy(found / f"{NETWORKS}.png", PICTURE)
    fires = {(_text(row, "method"), _text(row, "setting"), _text(row, "rule")): row for row in tables[FIRES]["rows"]}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{provenance.hardware()['cpu']}, {os.cpu_count()} cores",
        "rows": [_cells(row, fires) for row in tables[NETWORKS]["rows"]],
        "fired": sorted({f"{method} {rule}" for (method, _, rule), row in fires.items() if row["fired"]["reading"]}),
    }


def render(measured: Mapping[str, Any]) -> str:
    """The table, and on which methods any rule ever fires."""
    return "\n".join(
        [
            f"Measured {measured['date']} on {measured['machine']}, by `python -m benchmarks.architectures --record`; three "
            f"seeds, mean with 95 % t-interval, growth and ‖g_L‖ geometric, edition {EDITION}.",
            "",
            line(COLUMNS),
            "|---" * len(COLUMNS) + "|",
            *map(line, measured["rows"]),
            "",
            f"Of the rules that are judged every epoch these ever fire: {', '.join(measured['fired'])}.",
        ]
    )


def _cells(row: Mapping[str, Any], fires: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> list[str]:
    method, setting = _text(row, "method"), _text(row, "setting")
    low, high = row["accuracy"]["interval"]
    return [
        method,
        setting,
        f"{_number(row, 'accuracy', '.1%')} [{100 * low:.1f}, {100 * high:.1f}]",
        _number(row, "frozen", ".1%"),
        _number(row, "growth_max", ".3g"),
        _number(row, "g_L", ".1e"),
        _number(row, "gamma", ".3f"),
        _text(fires[method, setting, "D1"], "epochs"),
        _text(row, "verdict"),
    ]


def _text(row: Mapping[str, Any], column: str) -> str:
    return row[column]["text"]


def _number(row: Mapping[str, Any], column: str, form: str) -> str:
    reading = row[column]["reading"]
    return f"N/A: {reading['na']}" if isinstance(reading, Mapping) else format(reading, form)


def _run(arguments: list[str], folder: str) -> None:
    ended = subprocess.run([str(Path(sys.executable).parent / "fa-registry"), *arguments], cwd=folder)
    if ended.returncode:
        raise SystemExit(f"fa-registry {' '.join(arguments)}: exit {ended.returncode}")


if __name__ == "__main__":
    wanted = sys.argv[1:]
    if "--record" in wanted:
        store = next((one for one in wanted if not one.startswith("--")), "")
        MEASURED.write_text(json.dumps(record(store), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    block = render(json.loads(MEASURED.read_text(encoding="utf-8")))
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), BEGIN, block), encoding="utf-8")
