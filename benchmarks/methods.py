"""python -m benchmarks.methods [--record [STORE]]: the table of all methods in projects/methods/README.md.

--record runs the methods study (about twenty minutes on two quiet cores; in STORE it trains only what is missing there), audits
it, which measures every run again, times a step of every method, and keeps all that in docs/measured/; without it the table
between the page's markers is only written again from there.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.method_costs import measure_costs
from benchmarks.tables import header, inserted, line, row
from fa_registry import jsonio, provenance
from fa_registry.protocol.grouping import groups
from fa_registry.records import AuditReport
from fa_registry.training.devices import pinned_threads

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs" / "measured" / "methods.json"
PAGE = ROOT / "projects" / "methods" / "README.md"
BEGIN = "<!-- measured: python -m benchmarks.methods --record -->"


def record(store: str = "") -> dict[str, Any]:
    """Train, audit and time; plain data, with machine class and date."""
    with tempfile.TemporaryDirectory() as folder:
        place = ["--store", store] if store else []
        _run(["study", "methods", "--jobs", "2", *place], folder)
        _run(["audit", "--study", "methods", "--exit-zero", "--out", "reports", *place], folder)
        raw = json.loads((Path(folder) / "reports" / "audit.json").read_text(encoding="utf-8"))
    report = jsonio.decode(AuditReport, raw)
    with pinned_threads(1):
        costs = measure_costs()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{provenance.hardware()['cpu']}, {os.cpu_count()} cores",
        "edition": report.edition.name,
        "rows": [{"method": group.runs[0].record.spec.method, "cells": row(group)} for group in groups(report)],
        "costs": [dataclasses.asdict(cost) for cost in costs],
    }


def render(measured: Mapping[str, Any]) -> str:
    """The table: what the audit says of each method, and what its step costs."""
    costs = {cost["method"]: cost for cost in measured["costs"]}
    names, rule = header(measured["edition"])
    lines = [
        f"Measured {measured['date']} on {measured['machine']}, by `python -m benchmarks.methods --record`; "
        "resmlp, digits, 100 epochs. Step: of CIFAR's shape, one thread, relative to bp's (CPU time).",
        "",
        f"{names} step / bp |",
        f"{rule}---|",
        *(line([*one["cells"], _cost(one, costs)]) for one in measured["rows"]),
    ]
    return "\n".join(lines)


def _cost(one: Mapping[str, Any], costs: Mapping[str, Any]) -> str:
    """Of a method's plain row; a penalised one and a control were not timed."""
    return f"{costs[one['method']]['ratio']['median']:.2f}" if one["cells"][0] == one["method"] else ""


def _run(arguments: list[str], folder: str) -> None:
    subprocess.run([str(Path(sys.executable).parent / "fa-registry"), *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    if "--record" in wanted:
        store = next((one for one in wanted if not one.startswith("--")), "")
        MEASURED.parent.mkdir(parents=True, exist_ok=True)
        MEASURED.write_text(json.dumps(record(store), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    block = render(json.loads(MEASURED.read_text(encoding="utf-8")))
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), BEGIN, block), encoding="utf-8")
