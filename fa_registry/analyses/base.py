"""The interface of analyses.

The tables of an analysis answer one question about many runs. Each number in a table has the ids of the runs from which
the number was computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, EditionReference, Exclusion, Reading
from fa_registry.records.notebook_repr import NotebookRepr
from fa_registry.schema_number import SCHEMA

KINDS = (
    "text",
    "count",
    "chosen",
    "num",
    "sci",
    "pct",
    "pp",
    "nats",
    "signed_nats",
    "cos",
    "exact",
)


@dataclass(frozen=True)
class AnalysisColumn:
    """A column of an analysis table.

    Args:
        name: key of the column's cells.
        words: description of the content.
        kind: number format, one of KINDS.
    """

    name: str
    words: str
    unit: str = ""
    kind: str = "text"

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"column {self.name!r}: expected one of the kinds {', '.join(KINDS)}, found {self.kind!r}")

    @property
    def filter(self) -> str:
        """Name of the filter that formats the numbers of the column on a page."""
        return "compact" if self.kind in ("count", "chosen") else self.kind


@dataclass(frozen=True, slots=True)  # slots save memory: many runs give a hundred thousand cells
class AnalysisCell:
    """A cell of an analysis table: a number, a text, or both.

    Args:
        reading: the number, or the reason why there is no number.
        run_ids: ids of the runs that provided the content.
        interval: (low, high). For a mean over seeds, it is the 95 % interval.
        n: number of values from which the number is computed.
        of: number of all seeds, for a mean over seeds. Only `n` of these seeds have a value.
    """

    reading: Reading | None = None
    text: str = ""
    run_ids: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None
    n: int = 0
    of: int = 0

    def __post_init__(self):
        if self.reading is None and not self.text:
            raise ValueError(
                "expected a number, a text or both in a cell, found neither; for a missing number, pass a Reading with the reason"
            )


@dataclass(frozen=True, repr=False)
class AnalysisTable(NotebookRepr):
    """A table of an analysis.

    Args:
        name: key of the table.
        rows: one mapping column name → cell per row. Every row has a cell for every column.
        detail: if true, the table is too long for a terminal and is written only to files and figures.
    """

    name: str
    title: str
    columns: tuple[AnalysisColumn, ...]
    rows: tuple[Mapping[str, AnalysisCell], ...]
    detail: bool = False

    def __post_init__(self):
        names = [column.name for column in self.columns]
        for index, row in enumerate(self.rows):
            if set(row) != set(names):
                differing = sorted(set(row) ^ set(names))
                raise ValueError(
                    f"table {self.name!r}, row {index}: expected one cell per column, found only a column or only a cell for: "
                    f"{', '.join(differing)}"
                )

    def __repr__(self) -> str:
        return f"AnalysisTable({self.name!r}, columns: {len(self.columns)}, rows: {len(self.rows)})"


@dataclass(frozen=True, repr=False)
class Analysis(NotebookRepr):
    """The result of an analysis, and the runs and edition that the analysis used.

    The first table answers the question, and the other tables are the evidence for the answer.

    Args:
        source: publication that first investigated the question.
        selection: text that describes which runs were analysed.
        remarks: notes for the reader.
        excluded: selected runs that could not be read.
    """

    name: str
    title: str
    question: str
    source: str
    selection: str
    edition: EditionReference
    tables: tuple[AnalysisTable, ...]
    remarks: tuple[str, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    schema: int = SCHEMA

    def __repr__(self) -> str:
        return f"Analysis({self.name!r}, rows: {len(self.rows)})"

    @property
    def columns(self) -> tuple[AnalysisColumn, ...]:
        return self.tables[0].columns

    @property
    def rows(self) -> tuple[Mapping[str, AnalysisCell], ...]:
        return self.tables[0].rows

    def table(self, name: str) -> AnalysisTable:
        return next(table for table in self.tables if table.name == name)


@dataclass(frozen=True)
class AnalysisResult:
    """The return value of an analysis plug-in: its tables and remarks.

    The first table answers the question of the analysis.
    """

    tables: tuple[AnalysisTable, ...]
    remarks: tuple[str, ...] = ()


def without_rows(analysis: Analysis, reason: str = "the analysis cannot compute a result from these runs") -> str:
    """Return `reason` if the first table has no rows, else an empty string."""
    return "" if analysis.rows else reason


@dataclass(frozen=True)
class Analyser:
    """One analysis as a plug-in.

    Args:
        title: title on pages.
        question: question that the analysis answers, one sentence with a question mark.
        source: publication that first investigated the question.
        answer: function that computes the result from a report and the edition that judged the runs of the report.
        rank: position among the analyses on the first page of an audit, from 1; 0 if that page does not show the analysis.
        silence: function that receives the finished analysis. This function returns the reason why the analysis has no result;
            the text is empty if the analysis has a result.
        figure: module with the functions `numbers(analysis, runs)`, which returns a data frame, and `draw(canvas, frame)`, such
            as `my_package.my_figure`. It is imported when the figure is drawn. An analysis without a module has no figure.
    """

    name: str
    title: str
    question: str
    source: str
    answer: Callable[[AuditReport, Edition], AnalysisResult]
    rank: int = 0
    silence: Callable[[Analysis], str] = without_rows
    figure: str = ""

    def run(self, report: AuditReport, edition: Edition) -> Analysis:
        """Analyse every run of a report.

        Raises:
            ValueError: another edition judged the runs of the report.
        """
        expected, actual = edition.reference, report.edition
        if (expected.name, expected.digest, expected.overrides) != (actual.name, actual.digest, dict(actual.overrides)):
            raise ValueError(
                f"{self.name}: the report was judged by {report.edition.name} ({report.edition.digest[:12]}), expected "
                f"{edition.name} ({edition.digest[:12]}); judge the records again"
            )
        result = self.answer(report, edition)
        remarks = (*result.remarks, *report.remarks)
        if not any(run.record.spec.control == "none" for run in report.runs):
            found = f"{len(report.runs)}, only controls"
            remarks = (f"no trained method among the runs ({found}), so there is nothing to analyse", *remarks)
        return Analysis(
            name=self.name,
            title=self.title,
            question=self.question,
            source=self.source,
            selection=report.selection,
            edition=report.edition,
            tables=result.tables,
            remarks=remarks,
            excluded=report.excluded,
        )
