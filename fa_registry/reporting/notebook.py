"""HTML for notebooks and text for `print`, for audits, verdicts, runs and comparisons.

Both forms show the same titles and tables. The HTML has no scripts, and inherits colours and fonts from the light or dark theme
of the notebook. All texts of a run are escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from fa_registry.analyses import Analysis, AnalysisTable
from fa_registry.metrics import at_last_site, headlines_of, metric_named, metrics_of_headlines, metrics_of_report, table
from fa_registry.protocol.builtin_editions import describe_edition
from fa_registry.records import AuditReport, Measurements, Reading, RunAudit, RunRecord, Verdict
from fa_registry.records.notebook_repr import WRITERS, Writer
from fa_registry.reporting.files.csv import audit_table
from fa_registry.reporting.pages.comparison import CompareContext
from fa_registry.reporting.report_values import audit_columns, last_site, scalar_metric
from fa_registry.reporting.table import Column, ResultsTable
from fa_registry.reporting.text.filters import answer, counted, reading
from fa_registry.reporting.view_models import Estimate
from fa_registry.text_safety import escape_control, escape_to_one_line

MOST = 100  # rows of a table in a notebook; the pages and the data frames contain all rows
SCREEN, LINES = 40, 58  # rows of a table, and lines of a record, that `print` shows
STYLE = Markup(
    "<style>.fa-registry table{border-collapse:collapse}.fa-registry :is(th,td){padding:.2em .7em;text-align:left;"
    "border-bottom:1px solid;border-color:color-mix(in srgb,currentColor 30%,transparent)}.fa-registry td.n{text-align:right;"
    "font-variant-numeric:tabular-nums}.fa-registry .verdict{border:1px solid;border-radius:.3em;padding:0 .4em;"
    "white-space:nowrap}.fa-registry :is(.fail,.incomplete){font-weight:bold;border-width:2px}</style>"
)


NUMBERS = (Reading, Estimate)  # cells that are aligned to the right
Part = ResultsTable | Verdict


def _run_parts(record: RunRecord) -> Iterator[Part]:
    rows = [
        ("run", f"{record.name} ({record.run_id})"),
        ("setting", record.setting),
        ("status", record.status.replace("_", " ")),
        ("integrity", "; ".join([record.integrity.state, *record.integrity.details[:1]])),
    ]
    names = table("note", headlines_of([record]))
    known = metrics_of_headlines([record])
    # the findings contain the other metrics
    for quantity in (metric for name in names if not (metric := metric_named(name, known)).compared_with_control):
        name = quantity.name
        is_scalar = name in record.measurements.scalars
        value = scalar_metric(record, name) if is_scalar else last_site(record, at_last_site(name))
        rows.append((quantity.symbol, reading(value, quantity.kind)))
    yield ResultsTable.of(("", ""), rows)


def _judged_parts(run: RunAudit) -> Iterator[Part]:
    yield run.verdict
    yield from _run_parts(run.record)
    rows = [(finding.rule, finding.outcome.replace("_", " "), finding.sentence) for finding in run.findings]
    yield ResultsTable.of(("rule", "outcome", "finding"), rows)


def _report_parts(report: AuditReport) -> Iterator[Part]:
    metrics = audit_columns(report.runs, card_metrics=metrics_of_report(report))
    excluded_notes = [f"{len(report.excluded)} not judged"] if report.excluded else []
    counts = f"by edition {describe_edition(report.edition)}: {report.verdict_counts}"
    named = {
        "label": "method",
        "seed": "seed",
        "verdict": "verdict",
    }  # the text of a verdict contains its level of proof
    headings = named | {item.name: item.heading for item in metrics}
    yield replace(audit_table(report).select(headings), notes=("; ".join([counts, *excluded_notes]),))


def _comparison_parts(context: CompareContext) -> Iterator[Part]:
    yield ResultsTable((), (), context.title)
    for part, _ in context.parts:
        rows = [("verdict", *(column.verdict for column in part.columns))]
        for metric in part.metrics:
            rows.append((metric.symbol, *(column.estimates[metric.name] for column in part.columns)))
        note = f"{part.setting}." + ("" if part.comparable else f" Not comparable: {part.why_not}")
        yield replace(ResultsTable.of(("", *(column.method for column in part.columns)), rows), notes=(note,))


def _measurement_parts(measured: Measurements) -> Iterator[Part]:
    """Yield two tables of the metrics that have a value: by site, and the others."""
    by_site = [
        (name, *(reading(value, metric_named(name).kind) for value in values))
        for name, values in measured.sites.items()
        if any(value.value is not None for value in values)
    ]
    if by_site:
        yield ResultsTable.of(("site", *map(str, range(max(map(len, by_site)) - 1))), by_site)
    scalars = ((name, value) for name, value in measured.scalars.items() if value.value is not None)
    yield ResultsTable.of(("", ""), [(name, reading(value, metric_named(name).kind)) for name, value in scalars])


def _analysis_parts(analysis: Analysis) -> Iterator[Part]:
    """Yield the question of an analysis, and the table that answers the question."""
    note = "; ".join((analysis.question, analysis.selection))
    for part in _analysis_table_parts(analysis.tables[0]):
        yield replace(part, title=analysis.title, notes=(note,))


def _analysis_table_parts(table: AnalysisTable) -> Iterator[ResultsTable]:
    rows = [[answer(row[column.name], column.filter) for column in table.columns] for row in table.rows]
    yield replace(ResultsTable.of([column.name.replace("_", " ") for column in table.columns], rows), title=table.title)


def html(parts: Iterator[Part]) -> str:
    """Return the parts of a record as HTML."""
    return str(Markup('<div class="fa-registry">{}{}</div>').format(STYLE, Markup("").join(map(_part_html, parts))))


def _part_html(part: Part) -> Markup:
    if isinstance(part, Verdict):
        return _chip(part)
    title = Markup("<b>{}</b>").format(escape_control(part.title)) if part.title else Markup("")
    below = Markup(" ").join(map(escape_control, part.notes))
    above = Markup("<p>{}{}{}</p>").format(title, Markup("<br>") if title and below else "", below)
    head = Markup("").join(Markup("<th>{}</th>").format(_text(column.heading)) for column in part.columns)
    head = Markup("<tr>{}</tr>").format(head) if _has_head(part) else ""
    body = (Markup("").join(map(_cell_html, row, part.columns)) for row in part.rows[:MOST])
    body = Markup("").join(map(Markup("<tr>{}</tr>").format, body))
    omitted = _omitted(part, MOST)
    note = Markup("<p>{}</p>").format(omitted) if omitted else ""
    table_html = Markup("<table><thead>{}</thead><tbody>{}</tbody></table>{}").format(head, body, note)
    return (above if title or below else Markup("")) + (table_html if part.columns else "")


def _cell_html(cell: Any, column: Column) -> Markup:
    css = Markup(' class="n"') if isinstance(cell, NUMBERS) else ""
    return Markup("<td{}>{}</td>").format(css, _chip(cell) if isinstance(cell, Verdict) else _text(cell, column.kind))


def _chip(verdict: Verdict) -> Markup:
    return Markup('<span class="verdict {}">{}</span>').format(verdict.outcome, escape_control(verdict.full_label))


def text(parts: Iterator[Part]) -> str:
    """Return the parts of a record as at most LINES lines of text, with at most SCREEN rows of each table."""
    lines = [line for part in parts for line in _lines(part)]
    if len(lines) > LINES:
        lines[LINES - 1 :] = [f"{len(lines) - LINES + 1} more lines are not shown"]
    return "\n".join(lines)


def _lines(part: Part) -> Iterator[str]:
    if isinstance(part, Verdict):
        yield _text(part)
        return
    yield from (escape_to_one_line(line) for line in (part.title, *part.notes) if line)
    head = [[column.heading for column in part.columns]] if _has_head(part) else []
    rows = [*head, *part.rows[:SCREEN]]
    texts = [[_text(cell, column.kind) for cell, column in zip(row, part.columns, strict=True)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row, line in zip(rows, texts, strict=True):
        cells = zip(row, line, widths, strict=True)
        padded = (word.rjust(width) if isinstance(cell, NUMBERS) else word.ljust(width) for cell, word, width in cells)
        yield "  ".join(padded).rstrip()
    yield from filter(None, [_omitted(part, SCREEN)])


def _has_head(part: ResultsTable) -> bool:
    return any(column.heading for column in part.columns)


def _text(cell: Any, kind: str = "") -> str:
    if isinstance(cell, Estimate):
        return counted(cell)
    if isinstance(cell, Reading):
        return reading(cell, kind)
    return escape_to_one_line(cell.full_label if isinstance(cell, Verdict) else str(cell))


def _omitted(part: ResultsTable, most: int) -> str:
    rows = len(part.rows)
    return f"the first {most} of {rows} rows are shown" if rows > most else ""


def _writer(parts: Callable[[Any], Iterator[Part]]) -> Writer:
    return Writer(lambda record: html(parts(record)), lambda record: text(parts(record)))


COMPARISON = _writer(_comparison_parts)
WRITERS.update(
    {
        Verdict: _writer(lambda verdict: iter([verdict])),
        RunRecord: _writer(_run_parts),
        RunAudit: _writer(_judged_parts),
        AuditReport: _writer(_report_parts),
        Measurements: _writer(_measurement_parts),
        Analysis: _writer(_analysis_parts),
        AnalysisTable: _writer(_analysis_table_parts),
    }
)
