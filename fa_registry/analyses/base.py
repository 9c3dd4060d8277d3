"""What an analysis is: one question over many runs, answered by tables in which every number names its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fa_registry.deprecated_names import aliases
from fa_registry.protocol.rules import Edition
from fa_registry.records import SCHEMA, AuditReport, EditionReference, Exclusion, Reading

KINDS = ("text", "count", "chosen", "num", "sci", "pct", "pp", "cos", "exact")  # chosen: by a person, 0.01 not 0.0100


@dataclass(frozen=True)
class AnalysisColumn:
    """name: the key of its cells; words: what stands in it; unit: of its numbers; kind: how people read them (KINDS)."""

    name: str
    words: str
    unit: str = ""
    kind: str = "text"

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"column {self.name!r}: expected a kind of {', '.join(KINDS)}, found {self.kind!r}")


@dataclass(frozen=True, slots=True)  # a hundred thousand of them, where runs are many
class AnalysisCell:
    """A number, words, or both. run_ids: where it was read; n: how many values are behind it, with their `interval`.

    of: of a mean over seeds, how many seeds there are; n of them have a value.

    interval: 95 % Student-t interval (low, high) of a mean over seeds, or the ends of another estimate.
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
                "a cell holds a number, or words, or both; a number that is missing is a Reading with its reason"
            )


@dataclass(frozen=True)
class AnalysisTable:
    """rows: column name → cell, every column in every row. detail: for files and figures, too long for a terminal."""

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
                raise ValueError(f"table {self.name!r}, row {index}: not its columns and cells: {', '.join(odd)}")


@dataclass(frozen=True)
class Analysis:
    """One answered question. The first table is the answer, the others what it rests on.

    selection, edition: which runs, judged by which rules. source: who asked it first, and where.
    excluded: runs that were selected and could not be read; remarks: what a reader must know besides.
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
    """What an analyser finds: its tables, the answer first, and its remarks."""

    tables: tuple[AnalysisTable, ...]
    remarks: tuple[str, ...] = ()


def without_rows(analysis: Analysis, why: str = "it has no row for these runs") -> str:
    """`why` where the answer has no row, else nothing."""
    return "" if analysis.rows else why


@dataclass(frozen=True)
class Analyser:
    """One analysis as a plugin. answer(report, edition): the report's runs are judged by that edition.

    question: one sentence that ends in a question mark. rank: its place among the analyses of an audit's first page, from 1; 0: it
    is not there. silence(analysis): why there is nothing to say of these runs, empty where there is.
    """

    name: str
    title: str
    question: str
    source: str
    answer: Callable[[AuditReport, Edition], AnalysisResult]
    rank: int = 0
    silence: Callable[[Analysis], str] = without_rows

    def run(self, report: AuditReport, edition: Edition) -> Analysis:
        """The analysis of every run of the report. Raises ValueError when another edition judged them."""
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
    return (f"no trained method among the runs ({len(report.runs)}, controls alone): there is nothing to analyse",)


__getattr__ = aliases(__name__)
