"""The table of an audit with one row per run, and its file audit.csv in RFC 4180 format and UTF-8.

A missing number is an empty cell. The column `reasons` contains the reason.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fa_registry.metrics import Metric, metric_named, run_metrics, symbol_of, table
from fa_registry.protocol.builtin_editions import describe_edition
from fa_registry.records import AuditReport, Exclusion, Finding, Reading, RunAudit, Verdict
from fa_registry.records.runs import pairs
from fa_registry.reporting.report_values import Values, audit_columns
from fa_registry.reporting.table import NUMBER, TEXT, WHOLE, YES_NO, Column, ResultsTable
from fa_registry.reporting.view_models import ReportFile
from fa_registry.text_safety import escape_control, json_text

REASONS = "reasons"
EXCLUDED = "excluded"
# Texts that a spreadsheet would calculate (OWASP, CSV injection), also after blanks. Texts with a leading ' are included, so that
# every text can be restored.
CALCULATED = re.compile(r"[\s\x00-\x20\u200b\ufeff]*[=+@-]|[\t\r\n']")
OTHER_NAMES = {"g_norm_mean_ce_L": "g_L"}  # metric → its column, if the two names differ
NUMBERS = {name: OTHER_NAMES.get(name, name) for name in table("csv")}  # metric → its column
OF_A_RUN = (
    Column("label"),  # of the data frame
    *(
        Column(name, name, kind, description)
        for name, kind, description in (
            ("run_id", TEXT, "id of the run in the tracking store"),
            ("name", TEXT, "readable name of the run"),
            ("selection", TEXT, "which runs were audited, as text"),
            ("setting", TEXT, "the setting; only runs of the same setting are compared"),
            ("method", TEXT, "name of the method (credit rule)"),
            ("method_options", TEXT, "options of the method, as `name=value,…`"),
            ("control", TEXT, "`none`, or the kind of control that this run is"),
            ("penalty", NUMBER, "strength λ of the residual penalty"),
            ("penalty_embedding", NUMBER, "strength λ_0 of the penalty on the embedding"),
            ("architecture", TEXT, "name of the architecture"),
            ("architecture_options", TEXT, "options of the architecture, as `name=value,…`"),
            ("dataset", TEXT, "name of the data set"),
            ("seed", WHOLE, "seed of the run"),
            ("epochs", WHOLE, "requested number of epochs"),
            ("identity", TEXT, "SHA-256 of the whole specification"),
            ("status", TEXT, "complete, diverged, failed, or excluded (the run was not judged)"),
            (
                "integrity",
                TEXT,
                "whether the logged metrics are confirmed: verified, mismatch, unverifiable or trusted",
            ),
            ("edition", TEXT, "the leading edition (the first edition of the audit)"),
            ("edition_modified", YES_NO, "whether a threshold of the leading edition was overridden"),
            ("outcome", TEXT, "outcome of the leading edition's verdict: pass, warn, fail, incomplete, control"),
            ("verdict", TEXT, "verdict of the leading edition, as text"),
            ("proof", TEXT, "level of proof of the verdict: replayed, started or stated"),
        )
    ),
)
OF_A_RULE = (
    ("outcome", TEXT, "outcome of the rule: pass, warn, fail, error, not_applicable, skipped or waived"),
    ("state", TEXT, "label of the rule's result, such as CLEARS or UNDERCUT"),
    ("side", TEXT, "side of the limit on which the estimate is if the rule is UNDECIDED: above or below"),
    (
        "observed",
        NUMBER,
        "the value that the rule compared with its limit, in the unit of the metric: the value of this run, or the mean over "
        "the seeds counted in `seeds_RULE`",
    ),
    (
        "seeds",
        WHOLE,
        "number of runs whose mean is `observed_RULE`, repeated on the line of each of these runs; 1 if `observed_RULE` is "
        "the value of this run; 0 if there is no mean",
    ),
    (
        "first_fire",
        WHOLE,
        "the epoch at which the rule first fires; empty if the rule never fires or is not evaluated by epoch",
    ),
)


def write_csv(report: AuditReport, path: Path) -> None:
    """Write one line per judged run, then one per run that was not judged, with the status `excluded`."""
    full_table = audit_table(report)
    published = full_table.select({column.name: column.heading for column in full_table.columns if column.heading})
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\r\n")
        writer.writerows(csv_lines(published))
        writer.writerows(_excluded(exclusion, report, published.columns) for exclusion in report.excluded)


def guarded(text: str) -> str:
    """Return the text with an apostrophe in front if a spreadsheet would execute the text.

    A text that begins with an apostrophe gets a second apostrophe. Therefore every text is restored by removing one apostrophe.
    """
    return f"'{text}" if CALCULATED.match(text) else text


def csv_lines(table: ResultsTable) -> Iterator[list[str]]:
    """Yield the header and the rows of a table as texts; the last column has the reasons for empty cells."""
    headings = [column.heading for column in table.columns]
    yield [*(guarded(escape_control(heading)) for heading in headings), REASONS]
    for row in table.rows:
        cells = zip(headings, row, strict=True)
        reasons = {name: cell.reason for name, cell in cells if isinstance(cell, Reading) and cell.value is None}
        yield [*map(_written, row), _reasons(reasons)]


def _written(cell: Any) -> str:
    if isinstance(cell, Reading):
        return "" if cell.value is None else repr(cell.value)  # repr is read back as exactly the same number
    if isinstance(cell, Verdict):
        cell = cell.label
    return guarded(escape_control(cell)) if isinstance(cell, str) else str(cell)


def _excluded(exclusion: Exclusion, report: AuditReport, columns: Sequence[Column]) -> list[str]:
    cells = {"run_id": exclusion.run_id, "name": exclusion.name, "selection": report.selection, "status": EXCLUDED}
    cells |= {"integrity": "mismatch"} if exclusion.kind == "integrity" else {}
    texts = [guarded(escape_control(cells.get(column.heading, ""))) for column in columns]
    return [*texts, _reasons({EXCLUDED: exclusion.reason})]


def _reasons(reasons: dict[str, str]) -> str:
    """Return JSON that maps each empty column to its reason; the text is empty if no column is empty."""
    return json_text(json.dumps(reasons, ensure_ascii=False)) if reasons else ""


def audit_table(report: AuditReport) -> ResultsTable:
    """Return the table of an audit with one row per judged run, in the order of the report.

    The columns depend on the rules, editions, aggregates of Γ and other metrics of the report. audit.csv contains only the columns
    that have a heading.
    """
    values = Values.of(report)
    editions = [describe_edition(item) for item in (report.edition, *(one.edition for one in report.opinions))]
    rules = tuple(dict.fromkeys(finding.rule for run in report.runs for finding in run.findings))
    scalars = sorted({name for run in report.runs for name in run.record.measurements.scalars})
    gammas = [name for name in scalars if name.startswith("gamma_")]
    shown = audit_columns(report.runs, card_metrics=values.known)
    named = {item.name: item for item in (*run_metrics(scalars, values.known), *shown) if item.name not in NUMBERS}
    further = [item for item in named.values() if not item.name.startswith("gamma_")]
    unmeasured = [item for item in shown if item.name not in (*NUMBERS, *gammas) and item not in further]
    before, after = [metric_named(name) for name in (*NUMBERS, *gammas)], [*further, *unmeasured]
    columns = columns_of(editions, rules, gammas, further)
    columns += tuple(Column(item.name, kind=item.kind) for item in unmeasured)
    opinions = [{item.run_id: item.verdict for item in opinion.judgements} for opinion in report.opinions]

    def cells(run: RunAudit) -> Iterator[Any]:
        findings = {finding.rule: finding for finding in run.findings}
        yield from _cells_of_run(run, report)
        yield from (run.verdict, *(opinion[run.record.run_id] for opinion in opinions))
        yield from (values.value(run, metric).reading for metric in before)
        yield from (cell for rule in rules for cell in _cells_of_rule(rule, findings.get(rule)))
        yield from (values.value(run, metric).reading for metric in after)

    return ResultsTable(columns, tuple(tuple(cells(run)) for run in report.runs), report.title)


def columns_of(
    editions: Sequence[str], rules: Sequence[str], gammas: Sequence[str], further_metrics: Sequence[Metric]
) -> tuple[Column, ...]:
    """Return the columns of the table of an audit, in order.

    Args:
        editions: The editions; the leading edition is first.
        rules: The rules of the leading edition.
        gammas: Keys of the aggregates of Γ.
        further_metrics: Further metrics with one number per run. If another column already uses a name, the new column gets the
            suffix `_2`.
    """
    suffixes = [f"_{index + 1}" if name in editions[:index] else "" for index, name in enumerate(editions)]
    verdicts = [f"verdict_{name}{suffix}" for name, suffix in zip(editions, suffixes, strict=True)]
    gamma_text = (
        f"{symbol_of('gamma')} aggregated over samples and sites; the column name contains the sites (deep: 1..L) and both "
        "aggregations: `gamma_SITES_OVER-SITES_OVER-SAMPLES`"
    )
    columns = (
        *OF_A_RUN,
        *(Column(name, name, words="verdict of this edition, as text") for name in verdicts),
        *(_number(name, heading, metric_named(name)) for name, heading in NUMBERS.items()),
        *(Column(name, name, metric_named(name).kind, gamma_text) for name in gammas),
        *(Column(f"{name}_{rule}", f"{name}_{rule}", kind, text) for rule in rules for name, kind, text in OF_A_RULE),
    )
    used = {column.heading for column in columns}
    names = [f"{item.name}_2" if item.name in used else item.name for item in further_metrics]
    return (*columns, *map(_number, names, names, further_metrics))


def _number(name: str, heading: str, metric: Metric) -> Column:
    unit = f", {'a fraction of 1' if metric.unit == 'fraction' else metric.unit}" if metric.unit else ""
    return Column(name, heading, metric.kind, f"{metric.symbol}: {metric.words}{unit}")


def _cells_of_run(run: RunAudit, report: AuditReport) -> Iterator[Any]:
    record, spec, edition = run.record, run.record.spec, report.edition
    yield from (spec.label, record.run_id, record.name, report.selection, record.setting, spec.method)
    yield from (pairs(spec.method_options), spec.control, spec.penalty, spec.penalty_embedding, spec.architecture)
    yield from (pairs(spec.architecture_options), spec.dataset, spec.seed, spec.epochs, spec.identity)
    yield from (record.status, record.integrity.state, describe_edition(edition), bool(edition.overrides))
    yield from (run.verdict.outcome, run.verdict, run.verdict.proof)


def _cells_of_rule(rule: str, finding: Finding | None) -> Sequence[Any]:
    if finding is None:
        return [Reading(None, f"{rule} did not judge this run")] * len(OF_A_RULE)
    fired = "" if finding.first_fire is None else finding.first_fire
    return finding.outcome, finding.state, finding.side, finding.observed, finding.seeds, fired


FILE = ReportFile("audit.csv", "one line per run, for a spreadsheet", write_csv)
