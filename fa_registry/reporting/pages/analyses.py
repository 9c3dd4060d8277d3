"""The analyses on the page index.html. For each other analysis, the page states why it is left out."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.analyses import CATALOG, Analyser, Analysis, AnalysisCell, AnalysisColumn, AnalysisTable
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.rules import Edition, load_edition
from fa_registry.records import AuditReport
from fa_registry.reporting.figures.analyses import DRAWINGS, analysis_figure
from fa_registry.reporting.view_models import Number, Row, Truncated

ROOM, LEAST = 190_000, 40_000  # bytes of the page for all analyses; minimum space for one more analysis
MOST = 24  # rows of a table
CELL_BYTES, ROW_BYTES = 45, 60  # approximate size of a cell and of a row on the page
WRITTEN = {"count": "compact", "chosen": "compact"}  # kind of a column → its filter, if the filter has another name
NOTHING = "no trained method is among the runs"
COMMAND = "fa-registry analyse {} writes this analysis"


@dataclass(frozen=True)
class AnswerCell:
    """A cell of an analysis table; each part is optional.

    Attributes:
        words: Text before the number.
        number: The number.
        of: Number of values from which the cell is computed; 0 if the page does not print the number of values.
        interval: Interval of the number.
        reason: Reason why the cell has a text and no number.
        some: Text such as `2 of 3`; empty if all seeds have a value.
    """

    words: str = ""
    number: Number | None = None
    of: int = 0
    interval: tuple[float, float] | None = None
    reason: str = ""
    some: str = ""


@dataclass(frozen=True)
class PageAnalysis:
    """One analysis with its table and figure.

    Attributes:
        setting: The setting of all rows; empty if the rows have different settings.
        columns: For each column, the tuple (name, description, whether the column contains numbers).
    """

    name: str
    title: str
    question: str
    source: str
    setting: str
    columns: tuple[tuple[str, str, bool], ...]
    rows: Truncated[Row[AnswerCell]]
    uri: str
    alt: str
    remarks: tuple[str, ...]
    drawn: bytes = b""


@dataclass(frozen=True)
class PageAnalyses:
    """The analyses of the page.

    Attributes:
        shown: The analyses on the page.
        left_out: For each analysis that is not on the page, the tuple (title, reason).
    """

    shown: tuple[PageAnalysis, ...]
    left_out: tuple[tuple[str, str], ...]


def page_analyses(report: AuditReport, room: int = ROOM) -> PageAnalyses:
    """Return the analyses that have a result for the runs and fit on the page, in `room` bytes.

    The result also contains the title of every other analysis, with the reason why this analysis is not shown.
    """
    edition = _edition(report) if any(run.record.spec.control == "none" for run in report.runs) else NOTHING
    pages: list[PageAnalysis] = []
    left_out: list[tuple[str, str]] = []
    for analyser in ranked():
        full = f"the page is full; {COMMAND.format(analyser.name)}"
        reason, page = edition if isinstance(edition, str) else full if room < LEAST else "", None
        if not reason:
            analysis = analyser.run(report, edition)
            reason = analyser.silence(analysis)
            page = None if reason else _page(analysis, report)
        room -= _bytes(page) if page else 0
        if page and room >= 0:
            pages.append(page)
        else:
            left_out.append((analyser.title, reason or full))
    return PageAnalyses(tuple(pages), tuple(left_out))


def ranked() -> list[Analyser]:
    """Return the analyses that index.html may show, which have a rank and a figure, sorted by their rank."""
    analysers = (CATALOG.get(name.replace("-", "_")) for name in DRAWINGS)
    return sorted((analyser for analyser in analysers if analyser.rank), key=lambda analyser: analyser.rank)


def _edition(report: AuditReport) -> Edition | str:
    """Return the audit's first edition, or the reason why it cannot be used."""
    reference = report.edition
    try:
        edition = load_edition(reference.name, {name: float(value) for name, value in reference.overrides.items()})
    except (UnknownName, InvalidFields, ValueError) as error:
        return f"the edition of this audit, {reference.name}, cannot be read by this installation: {error}"
    if (edition.name, edition.digest) != (reference.name, reference.digest):
        digest = reference.digest[:12]
        return f"the edition {reference.name} of this installation is not the edition of this audit (sha256 {digest}…)"
    return edition


def _page(analysis: Analysis, report: AuditReport) -> PageAnalysis:
    table = analysis.tables[0]
    columns, setting = _columns(table)
    rows = []
    for row in table.rows[:MOST]:
        ids = dict.fromkeys(run_id for cell in row.values() for run_id in cell.run_ids)
        rows.append(Row("", tuple(_cell(row[column.name], column) for column in columns), run_ids=tuple(ids)))
    image = analysis_figure(analysis, report.runs)
    if image is None:
        raise LookupError(f"the analysis {analysis.name} has no figure in reporting.figures.analyses")
    described = ((one, f"{one.words} ({one.unit})" if one.unit else one.words) for one in columns)
    return PageAnalysis(
        analysis.name,
        analysis.title,
        analysis.question,
        analysis.source,
        setting,
        tuple((column.name.replace("_", " "), text, column.kind != "text") for column, text in described),
        Truncated(tuple(rows), len(table.rows)),
        image.uri,
        f"{table.title}: {analysis.question} The table that follows contains the numbers of this figure.",
        tuple(remark for remark in analysis.remarks if remark not in report.remarks),
        image,
    )


def _columns(table: AnalysisTable) -> tuple[list[AnalysisColumn], str]:
    settings = {row["setting"].text for row in table.rows if "setting" in row}
    if len(settings) != 1:
        return list(table.columns), ""
    return [column for column in table.columns if column.name != "setting"], settings.pop()


def _cell(cell: AnalysisCell, column: AnalysisColumn) -> AnswerCell:
    """Return a cell as `fa-registry analyse` prints it: `rejects 2 of 3`, `never`, a number and interval."""
    if cell.reading is None:
        return AnswerCell(cell.text)
    if cell.reading.value is None and cell.text:
        return AnswerCell(cell.text, reason=cell.reading.reason)
    if cell.text and cell.n and not cell.reading.value:
        return AnswerCell(cell.text)
    number = Number(cell.reading, WRITTEN.get(column.kind, column.kind), cell.run_ids)
    some = f"{cell.n} of {cell.of}" if 0 < cell.n < cell.of else ""
    return AnswerCell(cell.text, number, cell.n if cell.text else 0, cell.interval, some=some)


def _bytes(page: PageAnalysis) -> int:
    ids = sum(2 + len(run_id) for row in page.rows.shown for run_id in row.run_ids)
    text = sum(len(cell.words.encode()) for row in page.rows.shown for cell in row.cells)
    cells = len(page.rows.shown) * (ROW_BYTES + CELL_BYTES * len(page.columns))
    return len(page.uri) + ids + text + cells + sum(map(len, page.remarks))
