"""The analyses on the page index.html. For each other analysis, the page states why it is left out."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.analyses import Analysis, AnalysisCell, AnalysisColumn, AnalysisTable, Answers
from fa_registry.records import AuditReport
from fa_registry.reporting.figure_models import PageFigure
from fa_registry.reporting.figures.analyses import analysis_figure
from fa_registry.reporting.view_models import Row, Truncated

MOST = 20  # rows of a table


@dataclass(frozen=True)
class PageAnalysis:
    """One analysis with its table and figure.

    Attributes:
        setting: The setting of all rows; empty if the rows have different settings.
    """

    name: str
    question: str
    setting: str
    columns: tuple[AnalysisColumn, ...]
    rows: Truncated[Row[AnalysisCell]]
    figure: PageFigure
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class PageAnalyses:
    """The analyses of the page.

    Attributes:
        shown: The analyses on the page.
        left_out: For each analysis that is not on the page, the tuple (title, reason).
    """

    shown: tuple[PageAnalysis, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


def page_analyses(answers: Answers, report: AuditReport) -> PageAnalyses:
    """Return the analyses of a report with their tables and figures."""
    return PageAnalyses(tuple(_page(analysis, report) for analysis in answers.found), answers.left_out)


def _page(analysis: Analysis, report: AuditReport) -> PageAnalysis:
    table = analysis.tables[0]
    columns, setting = _columns(table)
    rows = []
    for row in table.rows[:MOST]:
        ids = dict.fromkeys(run_id for cell in row.values() for run_id in cell.run_ids)
        rows.append(Row("", tuple(row[column.name] for column in columns), run_ids=tuple(ids)))
    alt = f"{table.title}: {analysis.question} The table that follows contains the numbers of this figure."
    caption = f"This question was first asked by {analysis.source}."
    return PageAnalysis(
        analysis.name,
        analysis.question,
        setting,
        tuple(columns),
        Truncated(tuple(rows), len(table.rows)),
        PageFigure(analysis.title, alt, caption, analysis_figure(analysis, report.runs)),
        tuple(remark for remark in analysis.remarks if remark not in report.remarks),
    )


def _columns(table: AnalysisTable) -> tuple[list[AnalysisColumn], str]:
    settings = {row["setting"].text for row in table.rows if "setting" in row}
    if len(settings) != 1:
        return list(table.columns), ""
    return [column for column in table.columns if column.name != "setting"], settings.pop()
