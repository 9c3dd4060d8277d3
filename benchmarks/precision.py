"""python -m benchmarks.precision [--record [STORE]]: the table in projects/precision/README.md.

--record trains the study precision (in STORE only what is missing there), audits its logged figures and keeps what the table
shows in docs/measured/; without it the table is only written again from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.tables import header, inserted, line, row
from fa_registry import jsonio, provenance
from fa_registry.protocol.grouping import Group, groups
from fa_registry.records import AuditReport

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs" / "measured" / "precision.json"
PAGE = ROOT / "projects" / "precision" / "README.md"
BEGIN = "<!-- measured: python -m benchmarks.precision --record -->"


def record(store: str) -> dict[str, Any]:
    """Plain data, with machine class and date."""
    with tempfile.TemporaryDirectory() as folder:
        place = ["--store", store or f"sqlite:///{folder}/mlflow.db", "--device", "cpu"]
        _run(["study", "precision", "--jobs", "2", *place], folder)
        _run(["audit", "--study", "precision", "--trust-logged", "--exit-zero", *place], folder)
        raw = json.loads((Path(folder) / "reports" / "audit.json").read_text(encoding="utf-8"))
    report = jsonio.decode(AuditReport, raw)
    ordered = sorted(groups(report), key=lambda group: (group.control, group.method, _precision(group) != "fp32"))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{provenance.hardware()['cpu']}, {os.cpu_count()} cores",
        "edition": report.edition.name,
        "rows": [[_precision(group), *row(group)] for group in ordered],
    }


def render(measured: Mapping[str, Any]) -> str:
    """The table: every method in both precisions."""
    names, rule = header(measured["edition"])
    return "\n".join(
        [
            f"Measured {measured['date']} on {measured['machine']}, by `python -m benchmarks.precision --record`; 30 epochs.",
            "",
            f"| precision {names}",
            f"|---{rule}",
            *map(line, measured["rows"]),
        ]
    )


def _precision(group: Group) -> str:
    return group.runs[0].record.spec.precision


def _run(arguments: list[str], folder: str) -> None:
    subprocess.run([str(Path(sys.executable).parent / "fa-registry"), *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    if "--record" in wanted:
        store = next((one for one in wanted if not one.startswith("--")), "")
        MEASURED.write_text(json.dumps(record(store), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    block = render(json.loads(MEASURED.read_text(encoding="utf-8")))
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), BEGIN, block), encoding="utf-8")
