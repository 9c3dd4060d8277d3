"""Interface of analyses: a question about many runs, answered by tables with the runs of each number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fa_registry.deprecated_names import aliases
from fa_registry.protocol.rules import Edition
from fa_registry.records import SCHEMA, AuditReport, EditionReference, Exclusion, Reading

KINDS = ("text", "count", "chosen", "num", "sci", "pct", "pp", "cos", "exact")  # chosen: by a user, 0.01 not 0.0100


@dataclass(frozen=True)
class AnalysisColumn:
    """A column of an analysis table.

    Args:
        name: The key of its cells.
        words: A description of its content.
        unit: The unit of its numbers.
        kind: The number format, one of KINDS.
    """

    name: str
    words: str
    unit: str = ""
    kind: str = "text"

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"column {self.name!r}: expected a kind of {', '.join(KINDS)}, found {self.kind!r}")


@dataclass(frozen=True, slots=True)  # with many runs there are a hundred thousand cells
class AnalysisCell:
    """A number, a text, or both.

    Args:
        run_ids: The runs it was read from.
        interval: 95 % Student-t interval (low, high) of a mean over seeds, or the ends of another estimate.
        n: The number of values that it is computed from.
        of: For a mean over seeds, the number of seeds; n of them have a value.
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
                "expected a number, a text or both in a cell, found neither; for a missing number give a Reading with its reason"
            )


@dataclass(frozen=True)
class AnalysisTable:
    """A table of an analysis.

    Args:
        rows: Column name → cell, with every column in every row.
        detail: Whether it is for files and figures only, because it is too long for a terminal.
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
                odd = sorted(set(row) ^ set(names))
                raise ValueError(f"table {self.name!r}, row {index}: columns and cells differ in: {', '.join(odd)}")


@dataclass(frozen=True)
class Analysis:
    """One answered question: the first table is the answer, the others are its evidence.

    Args:
        source: The publication that first asked the question.
        selection: The analysed runs, as text.
        edition: The edition that judged the runs.
        remarks: Notes for the reader.
        excluded: Selected runs that could not be read.
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
    """The result of an analyser: its tables, the answer first, and its remarks."""

    tables: tuple[AnalysisTable, ...]
    remarks: tuple[str, ...] = ()


def without_rows(analysis: Analysis, why: str = "it has no row for these runs") -> str:
    """Return `why` if the answer has no row, else an empty text."""
    return "" if analysis.rows else why


@dataclass(frozen=True)
class Analyser:
    """One analysis as a plug-in.

    Args:
        question: One sentence that ends in a question mark.
        answer: answer(report, edition); the report's runs are judged by that edition.
        rank: Its position among the analyses of an audit's first page, from 1; 0 if it is not shown there.
        silence: silence(analysis) returns why there is no result for these runs, or an empty text.
    """

    name: str
    title: str
    question: str
    source: str
    answer: Callable[[AuditReport, Edition], AnalysisResult]
    rank: int = 0
    silence: Callable[[Analysis], str] = without_rows

    def run(self, report: AuditReport, edition: Edition) -> Analysis:
        """Return the analysis of every run of the report; raise ValueError if another edition judged them."""
        mine, its = edition.reference, report.edition
        if (mine.name, mine.digest, mine.overrides) != (its.name, its.digest, dict(its.overrides)):
            raise ValueError(
                f"{self.name}: the report was judged by {report.edition.name} ({report.edition.digest[:12]}), expected "
                f"{edition.name} ({edition.digest[:12]}); judge the records again"
            )
        found = self.answer(report, edition)
        remarks = (*_emptiness(report), *found.remarks, *report.remarks)
        return Analysis(
            name=self.name,
            title=self.title,
            question=self.question,
            source=self.source,
            selection=report.selection,
            edition=report.edition,
            tables=found.tables,
            remarks=remarks,
            excluded=report.excluded,
        )


def _emptiness(report: AuditReport) -> tuple[str, ...]:
    if any(run.record.spec.control == "none" for run in report.runs):
        return ()
    return (f"no trained method among the runs ({len(report.runs)}, only controls): there is nothing to analyse",)


__getattr__ = aliases(__name__)
