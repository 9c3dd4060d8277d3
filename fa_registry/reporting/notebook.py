"""HTML of audits, verdicts, runs and comparisons for notebooks.

The HTML has no scripts. The HTML inherits colours and fonts from the light or dark theme of the notebook. All texts of a run
are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from fa_registry.metrics import COMPARED_WITH_CONTROL, at_last_site, headlines_of, metrics_of_cards, quantity_of, table
from fa_registry.protocol.builtin_editions import describe_edition
from fa_registry.records import AuditReport, RunAudit, RunRecord, Verdict
from fa_registry.records.notebook_repr import WRITERS
from fa_registry.reporting.pages.comparison import CompareContext, SettingComparison
from fa_registry.reporting.report_values import Frozen, audit_columns, last_site, metric_of_run, scalar_metric
from fa_registry.reporting.text.filters import counted, number, reading
from fa_registry.text_safety import escape_control

MOST = 100  # rows of a table; the pages and the frames have all
STYLE = Markup(
    "<style>.fa-registry table{border-collapse:collapse}.fa-registry :is(th,td){padding:.2em .7em;text-align:left;"
    "border-bottom:1px solid;border-color:color-mix(in srgb,currentColor 30%,transparent)}.fa-registry td.n{text-align:right;"
    "font-variant-numeric:tabular-nums}.fa-registry .verdict{border:1px solid;border-radius:.3em;padding:0 .4em;"
    "white-space:nowrap}.fa-registry :is(.fail,.incomplete){font-weight:bold;border-width:2px}</style>"
)


def verdict_html(verdict: Verdict) -> str:
    return _page(_chip(verdict))


def run_html(record: RunRecord) -> str:
    """Return a table with name, status, integrity and headline metrics of a run."""
    return _page(_of_run(record))


def judged_html(run: RunAudit) -> str:
    """Return a run with its verdict and a table of all findings."""
    rows = [
        [
            escape(escape_control(finding.rule)),
            escape(finding.outcome.replace("_", " ")),
            escape(escape_control(finding.sentence)),
        ]
        for finding in run.findings
    ]
    return _page(_chip(run.verdict), _of_run(run.record), _table(("rule", "outcome", "finding"), rows))


def report_html(report: AuditReport) -> str:
    """Return title, edition, number of runs per verdict, and the table of an audit."""
    card_metrics, frozen = metrics_of_cards(report.cards), Frozen.of(report)
    columns = audit_columns(report.runs, card_metrics=card_metrics)
    rows = [
        [
            escape(escape_control(run.record.spec.label)),
            escape(run.record.spec.seed),
            _chip(run.verdict),
            *(
                Markup('<td class="n">{}</td>').format(number(metric_of_run(run, column, frozen, card_metrics)))
                for column in columns
            ),
        ]
        for run in report.runs[:MOST]
    ]
    counts = Counter(run.verdict.label for run in report.runs)
    statement = ", ".join(f"{count} {label}" for label, count in counts.items()) or "no run was judged"
    excluded_notes = [f"{len(report.excluded)} not judged"] if report.excluded else []
    truncation_notes = [f"the first {MOST} of {len(report.runs)} runs are shown"] if len(report.runs) > MOST else []
    text = escape_control(
        "; ".join([f"by edition {describe_edition(report.edition)}: {statement}", *excluded_notes, *truncation_notes])
    )
    heads = ("method", "seed", "verdict", *(column.heading for column in columns))
    return _page(Markup("<p><b>{}</b><br>{}</p>").format(escape_control(report.title), text), _table(heads, rows))


def comparison_html(context: CompareContext) -> str:
    """Return a table of the compared columns with verdicts and metrics over seeds."""
    parts = [_side_by_side(part) for part, _ in context.parts]
    return _page(Markup("<p><b>{}</b></p>").format(escape_control(context.title)), *parts)


def _side_by_side(part: SettingComparison) -> Markup:
    rows = [[Markup("verdict"), *(_chip(column.verdict) for column in part.columns)]]
    for compared in part.quantities[:MOST]:
        figures = (Markup('<td class="n">{}</td>').format(counted(estimate)) for estimate in compared.estimates)
        rows.append([escape(compared.symbol), *figures])
    reason = "" if part.comparable else f" Not comparable: {part.why_not}"
    heads = ("", *(escape_control(column.label) for column in part.columns))
    return Markup("<p>{}</p>").format(escape_control(f"{part.setting}.{reason}")) + _table(heads, rows)


def _of_run(record: RunRecord) -> Markup:
    statement = {
        "run": f"{record.name} ({record.run_id})",
        "setting": record.setting,
        "status": record.status.replace("_", " "),
        "integrity": "; ".join([record.integrity.state, *record.integrity.details[:1]]),
    }
    rows = [[escape(name), escape(escape_control(text))] for name, text in statement.items()]
    names = table("note", headlines_of([record]))
    for name in (name for name in names if name not in COMPARED_WITH_CONTROL):  # those are in the findings
        quantity = quantity_of(name)
        value = (
            scalar_metric(record, name)
            if name in record.measurements.scalars
            else last_site(record, at_last_site(name))
        )
        rows.append([escape(quantity.symbol), escape(reading(value, quantity.kind))])
    return _table((), rows)


def _chip(verdict: Verdict) -> Markup:
    return Markup('<span class="verdict {}">{}</span>').format(verdict.outcome, escape_control(verdict.label))


def _table(heads: Sequence[str], rows: Iterable[Sequence[Markup]]) -> Markup:
    head = Markup("<tr>{}</tr>").format(Markup("").join(Markup("<th>{}</th>").format(name) for name in heads))
    cells = (
        Markup("").join(cell if cell.startswith("<td") else Markup("<td>{}</td>").format(cell) for cell in row)
        for row in rows
    )
    body = Markup("").join(Markup("<tr>{}</tr>").format(row) for row in cells)
    return Markup("<table><thead>{}</thead><tbody>{}</tbody></table>").format(head if heads else "", body)


def _page(*parts: Markup) -> str:
    return str(Markup('<div class="fa-registry">{}{}</div>').format(STYLE, Markup("").join(parts)))


WRITERS.update({Verdict: verdict_html, RunRecord: run_html, RunAudit: judged_html, AuditReport: report_html})
