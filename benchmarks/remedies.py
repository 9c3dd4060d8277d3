"""python -m benchmarks.remedies [--record REPORTS…]: what cures feedback alignment, in the READMEs of the two remedies studies.

--record reads the folders that `fa-registry run remedies` and `fa-registry run remedies_tokens` wrote on this machine (90 and
75 minutes on two cores; a stopped study is continued by the same command). It measures the cost of a step of every recipe in a
minute, and takes the picture of the analysis. Without it, the tables are only written again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.recording import FOLDER, ROOT, stamp
from benchmarks.tables import audit_of, inserted, line
from benchmarks.tokens import step_ratios
from fa_registry.analyses import CATALOG, AnalysisCell
from fa_registry.protocol.rules import load_edition
from fa_registry.reporting.figures.analyses import analysis_figure

MEASURED = FOLDER / "remedies.json"
STUDIES = ("remedies", "remedies_tokens")
PAGES = {name: ROOT / "projects" / name / "README.md" for name in STUDIES}
PICTURES = {name: ROOT / "docs" / "images" / f"{name}.png" for name in STUDIES}
BEGIN = "<!-- measured: python -m benchmarks.remedies --record -->"
HEADLINES = {"accuracy": ("accuracy", "{:.3f}"), "token_loss": ("loss per token, nats", "{:.3f}")}
MARGINS = {"accuracy": ("margin over frozen, pp", "{:+.1f}"), "token_loss": ("margin over frozen, nats", "{:+.3f}")}
REST = (
    "largest growth of a block",
    "growth since initialisation",
    "Γ",
    "Γ of new feedback",
    "cost of a step, in steps of bp",
)


def record(reports: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of a study and its table as plain data, with machine and date; write the picture of its analysis."""
    report = audit_of(reports)
    analysis = CATALOG.get("remedies").run(report, load_edition(report.edition.name))
    PICTURES[report.choice.study].write_bytes(analysis_figure(analysis, report.runs))
    headline = next(name for name in HEADLINES if name in analysis.rows[0])
    specs = {run.record.run_id: run.record.spec for run in report.runs}
    recipes = {row["recipe"].text: specs[row["recipe"].run_ids[0]] for row in analysis.rows}
    ratios = step_ratios(recipes, "bp")
    rows = [
        [
            row["recipe"].text,
            f"{row['epochs'].reading.value:.0f}",
            row["verdict"].text,
            _with_interval(row[headline], HEADLINES[headline][1]),
            _with_interval(row["margin"], MARGINS[headline][1]),
            *(_number(row[name], "{:.3g}") for name in ("growth_max", "growth_init_max")),
            *(_number(row[name], "{:.3f}") for name in ("gamma", "gamma_null")),
            f"{ratios[row['recipe'].text]:.2f}",
        ]
        for row in analysis.rows
    ]
    verified = sum(run.record.integrity.state == "verified" for run in report.runs)
    found = {"headline": headline, "edition": report.edition.name, "runs": len(report.runs), "verified": verified}
    return report.choice.study, {**stamp(), **found, "rows": rows}


def _number(cell: AnalysisCell, form: str) -> str:
    value = cell.reading.value
    return "n/a" if value is None else form.format(value)


def _with_interval(cell: AnalysisCell, form: str) -> str:
    ends = f" [{form}, {form}]".format(*cell.interval) if cell.interval else ""
    return f"{_number(cell, form)}{ends}"


def render(measured: Mapping[str, Any], study: str) -> str:
    """Return the table of the page of one study."""
    found = measured[study]
    title = f"verdict by {found['edition']}"
    columns = ("recipe", "epochs", title, HEADLINES[found["headline"]][0], MARGINS[found["headline"]][0], *REST)
    where = (
        f"Measured {found['date']} on {found['machine']}, by `fa-registry run {study}` and "
        f"`python -m benchmarks.remedies --record reports`: {found['runs']} runs, metrics of {found['verified']} verified."
    )
    return "\n".join([where, "", line(columns), "|" + "---|" * len(columns), *map(line, found["rows"])])


def main(arguments: Sequence[str]) -> None:
    """Record, and write the tables again."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--record", nargs="+", type=Path, default=[], metavar="REPORTS", help="folders with audit.json")
    options = parser.parse_args(arguments)
    measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else {}
    if options.record:
        measured |= dict(map(record, options.record))
        MEASURED.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for study, page in PAGES.items():
        if study in measured:
            block = render(measured, study)
            page.write_text(inserted(page.read_text(encoding="utf-8"), BEGIN, block), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
