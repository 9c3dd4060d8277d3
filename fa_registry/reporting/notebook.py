"""HTML for notebooks and text for `print`, for audits, verdicts, runs and comparisons.

Both forms show the same titles and tables. The HTML has no scripts, and inherits colours and fonts from the light or dark theme
of the notebook. All texts of a run are escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from fa_registry.metrics import COMPARED_WITH_CONTROL, at_last_site, headlines_of, metrics_of_cards, quantity_of, table
from fa_registry.protocol.builtin_editions import describe_edition
from fa_registry.records import AuditReport, RunAudit, RunRecord, Verdict
from fa_registry.records.notebook_repr import WRITERS, Writer
from fa_registry.reporting.pages.comparison import CompareContext
from fa_registry.reporting.report_values import Frozen, audit_columns, last_site, metric_of_run, scalar_metric
from fa_registry.reporting.text.filters import counted, number, reading
from fa_registry.text_safety import escape_control, escape_to_one_line

MOST = 100  # rows of a table in a notebook; the pages and the data frames contain all rows
SCREEN = 40  # rows of a table that `print` shows
STYLE = Markup(
    "<style>.fa-registry table{border-collapse:collapse}.fa-registry :is(th,td){padding:.2em .7em;text-align:left;"
    "border-bottom:1px solid;border-color:color-mix(in srgb,currentColor 30%,transparent)}.fa-registry td.n{text-align:right;"
    "font-variant-numeric:tabular-nums}.fa-registry .verdict{border:1px solid;border-radius:.3em;padding:0 .4em;"
    "white-space:nowrap}.fa-registry :is(.fail,.incomplete){font-weight:bold;border-width:2px}</style>"
)


@dataclass(frozen=True)
class NotebookNumber:
    """Formatted number in a table, which is aligned to the right."""

    text: str


Cell = str | NotebookNumber | Verdict


@dataclass(frozen=True)
class NotebookTable:
    """Table of cells; `heads` is empty if the first column names the rows."""

    heads: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Title:
    """Heading with a sentence below it."""

    text: str
    below: str = ""


Part = Title | NotebookTable | Verdict


def _verdict_parts(verdict: Verdict) -> Iterator[Part]:
    yield verdict


def _run_parts(record: RunRecord) -> Iterator[Part]:
    statement: dict[str, Cell] = {
        "run": f"{record.name} ({record.run_id})",
        "setting": record.setting,
        "status": record.status.replace("_", " "),
        "integrity": "; ".join([record.integrity.state, *record.integrity.details[:1]]),
    }
    rows: list[tuple[Cell, Cell]] = list(statement.items())
    names = table("note", headlines_of([record]))
    for name in (name for name in names if name not in COMPARED_WITH_CONTROL):  # the findings contain the other metrics
        quantity = quantity_of(name)
        is_scalar = name in record.measurements.scalars
        value = scalar_metric(record, name) if is_scalar else last_site(record, at_last_site(name))
        rows.append((quantity.symbol, reading(value, quantity.kind)))
    yield NotebookTable((), rows)


def _judged_parts(run: RunAudit) -> Iterator[Part]:
    yield run.verdict
    yield from _run_parts(run.record)
    rows = [(finding.rule, finding.outcome.replace("_", " "), finding.sentence) for finding in run.findings]
    yield NotebookTable(("rule", "outcome", "finding"), rows)


def _report_parts(report: AuditReport) -> Iterator[Part]:
    card_metrics, frozen = metrics_of_cards(report.cards), Frozen.of(report)
    columns = audit_columns(report.runs, card_metrics=card_metrics)
    rows = [
        (
            run.record.spec.label,
            str(run.record.spec.seed),
            run.verdict,
            *(NotebookNumber(number(metric_of_run(run, column, frozen, card_metrics))) for column in columns),
        )
        for run in report.runs
    ]
    excluded_notes = [f"{len(report.excluded)} not judged"] if report.excluded else []
    counts = f"by edition {describe_edition(report.edition)}: {report.verdict_counts}"
    yield Title(report.title, "; ".join([counts, *excluded_notes]))
    yield NotebookTable(("method", "seed", "verdict", *(column.heading for column in columns)), rows)


def _comparison_parts(context: CompareContext) -> Iterator[Part]:
    yield Title(context.title)
    for part, _ in context.parts:
        rows: list[tuple[Cell, ...]] = [("verdict", *(column.verdict for column in part.columns))]
        for compared in part.quantities:
            rows.append((compared.symbol, *(NotebookNumber(counted(estimate)) for estimate in compared.estimates)))
        yield Title("", f"{part.setting}." + ("" if part.comparable else f" Not comparable: {part.why_not}"))
        yield NotebookTable(("", *(column.label for column in part.columns)), rows)


def html(parts: Iterator[Part]) -> str:
    """Return the parts of a record as HTML."""
    return str(Markup('<div class="fa-registry">{}{}</div>').format(STYLE, Markup("").join(map(_part_html, parts))))


def _part_html(part: Part) -> Markup:
    if isinstance(part, Verdict):
        return _chip(part)
    if isinstance(part, Title):
        title = Markup("<b>{}</b>").format(escape_control(part.text)) if part.text else Markup("")
        below = escape(escape_control(part.below))
        return Markup("<p>{}{}{}</p>").format(title, Markup("<br>") if title and below else "", below)
    head = Markup("").join(Markup("<th>{}</th>").format(_text(name)) for name in part.heads)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(map(_cell_html, row))) for row in part.rows[:MOST]
    )
    head = Markup("<tr>{}</tr>").format(head) if part.heads else ""
    omitted = _omitted(part, MOST)
    note = Markup("<p>{}</p>").format(omitted) if omitted else ""
    return Markup("<table><thead>{}</thead><tbody>{}</tbody></table>{}").format(head, body, note)


def _cell_html(cell: Cell) -> Markup:
    if isinstance(cell, NotebookNumber):
        return Markup('<td class="n">{}</td>').format(cell.text)
    return Markup("<td>{}</td>").format(_chip(cell) if isinstance(cell, Verdict) else _text(cell))


def _chip(verdict: Verdict) -> Markup:
    return Markup('<span class="verdict {}">{}</span>').format(verdict.outcome, escape_control(verdict.label))


def text(parts: Iterator[Part]) -> str:
    """Return the parts of a record as lines of text, with at most SCREEN rows of each table."""
    return "\n".join(line for part in parts for line in _lines(part))


def _lines(part: Part) -> Iterator[str]:
    if isinstance(part, Verdict):
        yield _text(part)
    elif isinstance(part, Title):
        yield from (escape_to_one_line(line) for line in (part.text, part.below) if line)
    else:
        rows = [*([part.heads] if part.heads else []), *part.rows[:SCREEN]]
        widths = [max(len(_text(row[column])) for row in rows) for column in range(len(rows[0]))] if rows else []
        for row in rows:
            padded = (
                _text(cell).rjust(width) if isinstance(cell, NotebookNumber) else _text(cell).ljust(width)
                for cell, width in zip(row, widths, strict=True)
            )
            yield "  ".join(padded).rstrip()
        yield from filter(None, [_omitted(part, SCREEN)])


def _text(cell: Cell) -> str:
    if isinstance(cell, NotebookNumber):
        return cell.text
    return escape_to_one_line(cell.label if isinstance(cell, Verdict) else cell)


def _omitted(table_part: NotebookTable, most: int) -> str:
    rows = len(table_part.rows)
    return f"the first {most} of {rows} rows are shown" if rows > most else ""


def _writer(parts: Callable[[Any], Iterator[Part]]) -> Writer:
    return Writer(lambda record: html(parts(record)), lambda record: text(parts(record)))


COMPARISON = _writer(_comparison_parts)
WRITERS.update(
    {
        Verdict: _writer(_verdict_parts),
        RunRecord: _writer(_run_parts),
        RunAudit: _writer(_judged_parts),
        AuditReport: _writer(_report_parts),
    }
)
