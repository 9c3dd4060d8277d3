"""The analyse command: judge runs once, apply analyses and write the results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fa_registry import jsonio
from fa_registry.analyses import CATALOG, Analysis
from fa_registry.audits.audit_command import build_report, checked_judging, is_intact
from fa_registry.audits.options import JudgingOptions, ReportOutput
from fa_registry.audits.selection import select_runs
from fa_registry.errors import IntegrityError, InvalidFields, UnknownName
from fa_registry.evidence.options import LOGGED, RemeasureOptions
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import analysis_figure, table_numbers
from fa_registry.reporting.results import TableResult
from fa_registry.studies.options import RunSelector, StoreLocation
from fa_registry.tracking.stores import open_tracker

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
REMOVED = {
    "per-layer": "was removed; the forms of `fa-registry audit` and the pages of `fa-registry compare` show its values"
}


@dataclass(frozen=True, repr=False)
class AnalyseResult(TableResult):
    """Result of `run_analyse`.

    Attributes:
        files: Paths of the written files; the JSON file of each analysis comes first.
        exit_code: 0 if all runs passed their integrity checks, otherwise 3.
    """

    analyses: tuple[Analysis, ...]
    files: tuple[Path, ...]
    exit_code: int

    def lines(self) -> Iterator[str]:
        yield f"analyses: {len(self.analyses)}, files: {len(self.files)}, in {self.files[0].parent}"

    def rows(self) -> list[dict[str, str | int]]:
        return [
            {"analysis": analysis.name, "question": analysis.question, "rows": len(analysis.rows)}
            for analysis in self.analyses
        ]

    def frame(self, name: str = "") -> pd.DataFrame:
        """Return the first table of an analysis as a pandas frame; the default is the first analysis."""
        return table_numbers(next(each for each in self.analyses if name in ("", each.name)).tables[0])


def run_analyse(
    name: str,
    selector: RunSelector,
    judging: JudgingOptions = JudgingOptions(),
    measuring: RemeasureOptions = LOGGED,
    location: StoreLocation = StoreLocation(),
    pages: ReportOutput = ReportOutput("reports/analyses"),
) -> AnalyseResult:
    """Judge runs by one edition, apply analyses, and write JSON, CSV and PNG files.

    Waivers do not apply, because an analysis uses the unmodified findings.

    Args:
        name: Name of one analysis, or `all`.
        judging: The edition and its thresholds.
        measuring: Whether and how to recompute metrics. By default, the logged metrics are used.

    Raises:
        InvalidFields: Arguments are invalid; the error lists all of them.
    """
    problems: list[str] = []
    requested = name.replace("_", "-")
    if requested in REMOVED:
        problems.append(f"name: the analysis {requested} {REMOVED[requested]}")
    elif requested not in (ALL, *names()):
        problems.append(f"name: {UnknownName('analysis', name, [*names(), ALL])}")
    editions, measuring = checked_judging(selector, judging, measuring, pages, problems)
    if problems:
        raise InvalidFields("analyse", problems)
    tracker = open_tracker(location.store, create=False)
    report = build_report(tracker, select_runs(tracker, selector), editions, measuring, location.root)
    out = Path(pages.out)
    out.mkdir(parents=True, exist_ok=True)
    analyses, files = [], []
    for analysis_name in CATALOG.members() if requested == ALL else [requested.replace("-", "_")]:
        analysis = CATALOG.get(analysis_name).run(report, editions[0])
        analyses.append(analysis)
        files += _write(analysis, report.runs, out)
    return AnalyseResult(tuple(analyses), tuple(files), 0 if is_intact(report) else IntegrityError.exit_code)


def names() -> list[str]:
    """Return the names of all analyses as typed on the command line, with hyphens."""
    return [name.replace("_", "-") for name in CATALOG.names()]


def _write(analysis: Analysis, runs: tuple[RunAudit, ...], out: Path) -> list[Path]:
    """Write the data as JSON, each table as CSV and the figure, if any, as PNG."""
    paths = [out / f"{analysis.name}.json"]
    paths[0].write_text(jsonio.pretty(analysis), encoding="utf-8")
    for index, table in enumerate(analysis.tables):
        path = out / (f"{analysis.name}-{table.name}.csv" if index else f"{analysis.name}.csv")
        table_numbers(table).to_csv(path, index=False, lineterminator="\n")
        paths.append(path)
    image = analysis_figure(analysis, runs)
    if image:
        paths.append(out / f"{analysis.name}.png")
        paths[-1].write_bytes(image)
    return paths
