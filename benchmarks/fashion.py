"""python -m benchmarks.fashion [--record REPORTS] [--pictures]: the fashion study, README's main result.

--record reads the folder that `fa-registry run fashion --editions 2026-05,2026-12` wrote on this machine (20 minutes on two quiet
cores), writes docs/measured/fashion.json, and keeps the audit in docs/example. --pictures takes README's pictures of
the pages in docs/example. Without an option, the tables of README and of projects/fashion/README.md and the pages of docs/example
are only written again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import calibration
from benchmarks.recording import FOLDER, ROOT, stamp
from benchmarks.tables import audit_of, gamma, inserted, line, main_metric, margin, mean, scales
from fa_registry.protocol.grouping import Group, groups
from fa_registry.records import AuditReport
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.render import render_comparison, render_report

MEASURED = FOLDER / "fashion.json"
BEGIN = "<!-- measured: python -m benchmarks.fashion --record -->"
EDITIONS = ("2026-05", "2026-12")
FOLLOWED = ("h_L", "growth_max", "growth_init_max", "g_norm_mean_ce_L", "accuracy")
SHOWN_EPOCHS = (0, 1, 2, 3, 5, 10, 15)
COLUMNS = (
    "method",
    "accuracy [95 % interval over seeds and test samples]",
    "margin over frozen, pp",
    "growth of a block",
    "growth since initialisation",
    "‖h_L‖",
    "‖g_L‖ (mean CE)",
    "Γ",
)
SHORT = (*COLUMNS[:3], "growth since initialisation", "Γ", *EDITIONS)  # README's columns
LABELS = {
    "h_L": "‖h_L‖",
    "growth_max": "largest growth of a block",
    "growth_init_max": "largest growth since initialisation",
    "g_norm_mean_ce_L": "‖g_L‖ of the mean CE",
    "accuracy": "test accuracy",
}
EXAMPLE = ROOT / "docs" / "example"  # the audit, and the pages that are written from it


def record(reports: Path) -> dict[str, Any]:
    """Read the audit of the study; return plain data with machine and date."""
    report = audit_of(reports)
    found = groups(report)
    return {
        **stamp(),
        "verified": sum(run.record.integrity.state == "verified" for run in report.runs),
        "runs": len(report.runs),
        "rows": [_row(group, report) for group in found],
        "epochs": {group.method: _epochs(group) for group in found},
        "first_fires": {group.method: _first_fires(group) for group in found if not group.control},
        "ranges": [calibration.row(group, report) for group in found if not group.control],
    }


def _row(group: Group, report: AuditReport) -> list[str]:
    """Return one method in the order of the columns, then its verdict by every edition."""
    opinions = {
        opinion.edition.name: {one.run_id: one.verdict.label for one in opinion.judgements}
        for opinion in report.opinions
    }
    opinions[report.edition.name] = {run.record.run_id: run.verdict.label for run in group.runs}
    verdicts = (", ".join(dict.fromkeys(opinions[name][run.record.run_id] for run in group.runs)) for name in EDITIONS)
    return [
        group.method,
        main_metric(group, "accuracy"),
        margin(group, "margin_pp", "+.1f"),
        *scales(group),
        gamma(group),
        *verdicts,
    ]


def _epochs(group: Group) -> dict[str, list[float | None]]:
    """Return the mean over seeds of every followed metric by epoch."""
    found = {}
    for name in FOLLOWED:
        lines = [run.record.trajectory.get(name, ()) for run in group.runs]
        found[name] = [mean(name, at) for at in zip(*lines, strict=False)]
    return found


def _first_fires(group: Group) -> dict[str, list[int | None]]:
    rules = ("D1", "D2")
    return {rule: [one.first_fire for run in group.runs for one in run.findings if one.rule == rule] for rule in rules}


def render(measured: Mapping[str, Any]) -> str:
    """Return README's block."""
    return _table(measured, SHORT)


def _table(measured: Mapping[str, Any], names: Sequence[str]) -> str:
    columns = [*COLUMNS, *EDITIONS]
    places = [columns.index(name) for name in names]
    runs = f"{measured['runs']} runs of 15 epochs, metrics of {measured['verified']} verified by the audit"
    took = "scales are geometric means over seeds"
    by = "`make fashion` and `python -m benchmarks.fashion --record reports`"
    where = f"Measured {measured['date']} on {measured['machine']}, by {by}: {runs}; {took}."
    rows = [[row[place] for place in places] for row in measured["rows"]]
    return "\n".join([where, "", line(names), "|" + "---|" * len(names), *map(line, rows)])


def render_epochs(measured: Mapping[str, Any]) -> str:
    """Return the block of the study's own page: README's table with all columns, then every followed metric by epoch."""
    lines = [_table(measured, [*COLUMNS, *EDITIONS]), ""]
    for name in FOLLOWED:
        head = [LABELS[name], *(f"epoch {epoch}" for epoch in SHOWN_EPOCHS)]
        lines += [line(head), "|" + "---|" * len(head)]
        for method, followed in measured["epochs"].items():
            if any(value is not None for value in followed[name]):
                lines.append(line([method, *_cells(followed[name], name)]))
        lines.append("")
    fires = "; ".join(
        f"{method}: {_fires(rules)}" for method, rules in measured["first_fires"].items() if _fires(rules)
    )
    return "\n".join([*lines, f"First fire by epoch, one number a seed: {fires}."])


def _cells(values: Sequence[float | None], name: str) -> Iterator[str]:
    form = ".3f" if name == "accuracy" else ".3g"
    for epoch in SHOWN_EPOCHS:
        value = values[epoch] if epoch < len(values) else None
        yield "n/a" if value is None else format(value, form)


def _fires(rules: Mapping[str, Sequence[int | None]]) -> str:
    known = {rule: [epoch for epoch in epochs if epoch is not None] for rule, epochs in rules.items()}
    return ", ".join(f"{rule} at {', '.join(map(str, epochs))}" for rule, epochs in known.items() if epochs)


def example(folder: Path = EXAMPLE) -> None:
    """Write the HTML pages of docs/example/audit.json into a folder, with the comparison, without the files for programs."""
    report = audit_of(EXAMPLE)
    with tempfile.TemporaryDirectory() as name:
        render_report(report, Path(name))
        render_comparison(compare_context(report, [one for one in groups(report) if not one.control]), Path(name))
        for page in (*sorted(Path(name).glob("*.html")), *sorted((Path(name) / "forms").glob("*.html"))):
            place = folder / page.relative_to(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, place)


def pictures() -> None:
    """Take README's pictures of the pages in docs/example, in chromium with a fresh profile."""
    from PIL import Image

    from tests.end_to_end.browser import chromium

    form = next(path for path in sorted((EXAMPLE / "forms").glob("dfa-*.html")) if "pen" not in path.name)
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        for name, shown in (("form", form), ("compare", EXAMPLE / "compare.html")):
            page.goto(shown.as_uri())
            path = ROOT / "docs" / "images" / f"fashion-{name}.png"
            page.screenshot(path=path, animations="disabled")
            Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def main(arguments: Sequence[str]) -> None:
    """Record, take pictures, write the tables again."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--record", type=Path, metavar="REPORTS", help="folder with audit.json; keep its numbers")
    parser.add_argument("--pictures", action="store_true", help="take README's pictures")
    asked = parser.parse_args(arguments)
    if asked.record:
        measured = record(asked.record)
        MEASURED.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        shutil.copyfile(asked.record / "audit.json", EXAMPLE / "audit.json")
    example()
    if asked.pictures:
        pictures()
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    for page, block in ((ROOT / "README.md", render), (ROOT / "projects" / "fashion" / "README.md", render_epochs)):
        page.write_text(inserted(page.read_text(encoding="utf-8"), BEGIN, block(measured)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
