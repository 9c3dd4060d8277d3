"""python -m benchmarks.studies [--record REPORTS…]: the tables of the studies `methods` and `fmnist_5x256` in their READMEs.

--record reads the folders that `fa-registry run methods` and `fa-registry run fmnist_5x256` wrote on this machine. Without it, the
tables are only written again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fashion import COLUMNS
from benchmarks.recording import FOLDER, ROOT, stamp
from benchmarks.tables import audit_of, gamma, inserted, labels, line, main_metric, margin, scales
from fa_registry.protocol.grouping import groups
from fa_registry.studies.study import load_study

MEASURED = FOLDER / "studies.json"
PAGES = {name: ROOT / "projects" / name / "README.md" for name in ("methods", "fmnist_5x256")}
BEGIN = "<!-- measured: python -m benchmarks.studies --record -->"


def record(reports: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of a study and its tables, one per setting, as plain data with machine and date."""
    report = audit_of(reports)
    study = report.choice.study
    names = load_study(study).labels
    tables: dict[str, list[list[str]]] = {}
    for group in groups(report):
        setting = group.runs[0].record.spec.setting.identity
        if setting not in names:  # the longer training of the control frozen_long
            continue
        cells = [main_metric(group, "accuracy"), margin(group, "margin_pp", "+.1f"), *scales(group), gamma(group)]
        tables.setdefault(", ".join(names[setting]), []).append([group.method, *cells, labels(group)])
    verified = sum(run.record.integrity.state == "verified" for run in report.runs)
    found = {"edition": report.edition.name, "runs": len(report.runs), "verified": verified}
    return study, {**stamp(), **found, "tables": tables}


def render(measured: Mapping[str, Any], study: str) -> str:
    """Return the tables of the page of one study."""
    found = measured[study]
    columns = (*COLUMNS, f"verdict by {found['edition']}")
    lines = [
        f"Measured {found['date']} on {found['machine']}, by `fa-registry run {study}` and "
        f"`python -m benchmarks.studies --record reports`: {found['runs']} runs, metrics of {found['verified']} verified; "
        "scales are geometric means over seeds."
    ]
    for name, rows in found["tables"].items():
        lines += ["", f"**{name}**", "", line(columns), "|" + "---|" * len(columns), *map(line, rows)]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Record, and write the tables again."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--record", nargs="+", type=Path, default=[], metavar="REPORTS", help="folders with audit.json")
    options = parser.parse_args(arguments)
    measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else {}
    if options.record:
        measured |= dict(map(record, options.record))
        MEASURED.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for study in measured:
        page = PAGES[study]
        page.write_text(inserted(page.read_text(encoding="utf-8"), BEGIN, render(measured, study)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
