"""Writer of audit.csv: one line per run, in RFC 4180 format and UTF-8.

A missing number is an empty cell. The column `reasons` contains the reason.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fa_registry.metrics import (
    NONE,
    Known,
    Metric,
    headlines_of,
    metrics_of_cards,
    quantity_of,
    run_metrics,
    symbol_of,
    table,
)
from fa_registry.protocol.builtin_editions import describe_edition
from fa_registry.records import AuditReport, Exclusion, Finding, Reading, RunAudit, Verdict
from fa_registry.records.runs import pairs
from fa_registry.reporting.files import ReportFile
from fa_registry.reporting.report_values import Frozen, audit_columns, metric_of_run, scalar_metric
from fa_registry.text_safety import escape_control, json_text

REASONS = "reasons"
EXCLUDED = "excluded"
# Texts that a spreadsheet would calculate (OWASP, CSV injection), also after blanks. Texts with a leading ' are included, so that
# `unguarded` can restore every text.
CALCULATED = re.compile(r"[\s\x00-\x20\u200b\ufeff]*[=+@＝＋－＠-]|[\t\r\n']")


def write_csv(report: AuditReport, path: Path) -> None:
    """Write one line per run: judged runs first, then runs that were not judged.

    Runs that were not judged have the status `excluded`.
    """
    csv_columns = columns(report)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\r\n")
        writer.writerow([guarded(escape_control(column.name)) for column in csv_columns] + [REASONS])
        for row in rows(report):
            writer.writerow(_line(row, csv_columns))
        writer.writerows(_excluded(exclusion, report, csv_columns) for exclusion in report.excluded)


def guarded(text: str) -> str:
    """Return the text with an apostrophe in front if a spreadsheet would execute the text.

    A text that begins with an apostrophe gets a second apostrophe. Therefore `unguarded` can restore every text.
    """
    return f"'{text}" if CALCULATED.match(text) else text


def unguarded(cell: str) -> str:
    """Return the original text of a cell that `guarded` returned."""
    return cell.removeprefix("'")


def _line(row: CsvRowSource, csv_columns: Sequence[CsvColumn]) -> list[str]:
    cells = {column.name: column.read(row) for column in csv_columns}
    reasons = {name: cell.reason for name, cell in cells.items() if isinstance(cell, Reading) and cell.value is None}
    return [_written(cell) for cell in cells.values()] + [_reasons(reasons)]


def _written(cell: CsvCell) -> str:
    if isinstance(cell, str):
        return guarded(escape_control(cell))
    if isinstance(cell, Reading):
        return "" if cell.value is None else repr(cell.value)  # repr is read back as exactly the same number
    return str(cell)


def _excluded(exclusion: Exclusion, report: AuditReport, csv_columns: Sequence[CsvColumn]) -> list[str]:
    cells = {"run_id": exclusion.run_id, "name": exclusion.name, "selection": report.selection, "status": EXCLUDED}
    cells |= {"integrity": "mismatch"} if exclusion.kind == "integrity" else {}
    return [guarded(escape_control(cells.get(column.name, ""))) for column in csv_columns] + [
        _reasons({EXCLUDED: exclusion.reason})
    ]


def _reasons(reasons: dict[str, str]) -> str:
    """Return JSON that maps each empty column to its reason; the text is empty if no column is empty."""
    return json_text(json.dumps(reasons, ensure_ascii=False)) if reasons else ""


# The columns of audit.csv: content, unit, and how each is read from a run.


TEXT, WHOLE, NUMBER, YES_NO = "text", "integer", "number", "boolean"


@dataclass(frozen=True)
class CsvRowSource:
    """The data from which one line of audit.csv is written.

    Args:
        verdicts: The verdict of every edition; the leading edition is first.
        findings: Rule of the leading edition → its finding.
    """

    report: AuditReport
    run: RunAudit
    frozen: Frozen
    verdicts: tuple[Verdict, ...]
    findings: Mapping[str, Finding]


CsvCell = str | int | float | bool | Reading


@dataclass(frozen=True)
class CsvColumn:
    """A column of audit.csv.

    Args:
        name: Name in the header line.
        description: Description for docs/audit-json.md.
        kind: text, integer, number or boolean.
        read: Function that reads the cell. For a Reading without a value, the cell is empty and the column `reasons` has the
            reason.
    """

    name: str
    description: str
    kind: str
    read: Callable[[CsvRowSource], CsvCell]


def _spec(name: str, text: str, kind: str = TEXT) -> CsvColumn:
    return CsvColumn(name, text, kind, lambda row: getattr(row.run.record.spec, name))


def _number(name: str, quantity: Metric, card_metrics: Known) -> CsvColumn:
    unit = f", {'a fraction of 1' if quantity.unit == 'fraction' else quantity.unit}" if quantity.unit else ""

    def read(row: CsvRowSource) -> CsvCell:
        return metric_of_run(row.run, quantity, row.frozen, card_metrics).reading

    return CsvColumn(name, f"{quantity.symbol}: {quantity.words}{unit}", NUMBER, read)


WHO = (
    CsvColumn("run_id", "id of the run in the tracking store", TEXT, lambda row: row.run.record.run_id),
    CsvColumn("name", "readable name of the run", TEXT, lambda row: row.run.record.name),
    CsvColumn("selection", "which runs were audited, as text", TEXT, lambda row: row.report.selection),
    CsvColumn(
        "setting", "the setting; only runs of the same setting are compared", TEXT, lambda row: row.run.record.setting
    ),
    _spec("method", "name of the method (credit rule)"),
    CsvColumn(
        "method_options",
        "options of the method, as `name=value,…`",
        TEXT,
        lambda row: pairs(row.run.record.spec.method_options),
    ),
    _spec("control", "kind of control, such as `frozen`; `none` if this run is no control"),
    _spec("penalty", "strength λ of the residual penalty", NUMBER),
    _spec("architecture", "name of the architecture"),
    CsvColumn(
        "architecture_options",
        "options of the architecture, as `name=value,…`",
        TEXT,
        lambda row: pairs(row.run.record.spec.architecture_options),
    ),
    _spec("dataset", "name of the data set"),
    _spec("seed", "seed of the run", WHOLE),
    _spec("epochs", "requested number of epochs", WHOLE),
    CsvColumn("identity", "SHA-256 of the whole specification", TEXT, lambda row: row.run.record.spec.identity),
)
JUDGED = (
    CsvColumn(
        "status",
        "complete, diverged, failed, or excluded (the run was not judged)",
        TEXT,
        lambda row: row.run.record.status,
    ),
    CsvColumn(
        "integrity",
        "whether the logged metrics are confirmed: verified, mismatch, unverifiable or trusted",
        TEXT,
        lambda row: row.run.record.integrity.state,
    ),
    CsvColumn(
        "edition",
        "the leading edition (the first edition of the audit)",
        TEXT,
        lambda row: describe_edition(row.report.edition),
    ),
    CsvColumn(
        "edition_modified",
        "whether a threshold of the leading edition was overridden",
        YES_NO,
        lambda row: bool(row.report.edition.overrides),
    ),
    CsvColumn(
        "outcome",
        "outcome of the leading edition's verdict: pass, warn, fail, incomplete, control",
        TEXT,
        lambda row: row.run.verdict.outcome,
    ),
    CsvColumn("verdict", "verdict of the leading edition, as text", TEXT, lambda row: row.run.verdict.label),
)
OTHER_NAMES = {"g_norm_mean_ce_L": "g_L_mean_ce"}  # metric → its column, if the two names differ
NUMBERS = {OTHER_NAMES.get(name, name): name for name in table("csv")}  # column → its metric


def columns(report: AuditReport) -> tuple[CsvColumn, ...]:
    """Return the columns of audit.csv for a report, in order.

    The columns depend on the rules, editions, aggregates of Γ and other metrics of the report.
    """
    editions = tuple(
        describe_edition(item) for item in (report.edition, *(opinion.edition for opinion in report.opinions))
    )
    rules = dict.fromkeys(finding.rule for run in report.runs for finding in run.findings)
    scalars = sorted({name for run in report.runs for name in run.record.measurements.scalars})
    gammas = [name for name in scalars if name.startswith("gamma_")]
    card_metrics = metrics_of_cards(report.cards)
    headlines = headlines_of(run.record for run in report.runs)
    table_metrics = audit_columns(
        report.runs, [name for name in table("audit", headlines) if name not in NUMBERS.values()], card_metrics
    )
    further_metrics = {item.name: item for item in (*run_metrics(scalars, card_metrics), *table_metrics)}
    further_metrics = {
        name: item
        for name, item in further_metrics.items()
        if not name.startswith("gamma_") and name not in NUMBERS.values()
    }
    return columns_of(editions, tuple(rules), gammas, tuple(further_metrics.values()), card_metrics)


def columns_of(
    editions: Sequence[str],
    rules: Sequence[str],
    gammas: Sequence[str],
    further_metrics: Sequence[Metric],
    card_metrics: Known = NONE,
) -> tuple[CsvColumn, ...]:
    """Return the columns of audit.csv, in order.

    Args:
        editions: The editions; the leading edition is first.
        rules: The rules of the leading edition.
        gammas: Keys of the aggregates of Γ.
        further_metrics: Further metrics with one number per run. If another column already uses a name, the new column gets the
            suffix `_2`.
        card_metrics: The metrics that the plug-in cards of the report declare.
    """
    fixed_columns = _ours(editions, rules, gammas)
    used_names = {column.name for column in fixed_columns}
    return (
        *fixed_columns,
        *(
            _number(f"{metric.name}_2" if metric.name in used_names else metric.name, metric, card_metrics)
            for metric in further_metrics
        ),
    )


def _ours(editions: Sequence[str], rules: Sequence[str], gammas: Sequence[str]) -> tuple[CsvColumn, ...]:
    return (
        *WHO,
        *JUDGED,
        *(_verdict(name, index, editions) for index, name in enumerate(editions)),
        *(_number(name, quantity_of(quantity), NONE) for name, quantity in NUMBERS.items()),
        *(_gamma(name) for name in gammas),
        *(column for rule in rules for column in _rule(rule)),
    )


def rows(report: AuditReport) -> Iterator[CsvRowSource]:
    """Yield the data of one line per judged run, in the order of the report."""
    frozen = Frozen.of(report)
    opinions = [{item.run_id: item.verdict for item in opinion.judgements} for opinion in report.opinions]
    for run in report.runs:
        statement = tuple(opinion[run.record.run_id] for opinion in opinions)
        yield CsvRowSource(report, run, frozen, (run.verdict, *statement), {item.rule: item for item in run.findings})


def _verdict(edition: str, index: int, editions: Sequence[str]) -> CsvColumn:
    """Return the column of an edition's verdict, with a suffix for a repeated name."""
    name = f"verdict_{edition}" if edition not in editions[:index] else f"verdict_{edition}_{index + 1}"
    return CsvColumn(name, "verdict of this edition, as text", TEXT, lambda row: row.verdicts[index].label)


def _gamma(name: str) -> CsvColumn:
    text = (
        f"{symbol_of('gamma')} aggregated over samples and sites; the column name contains the sites (deep: 1..L) and both "
        "aggregations: `gamma_SITES_OVER-SITES_OVER-SAMPLES`"
    )
    return CsvColumn(name, text, NUMBER, lambda row: scalar_metric(row.run.record, name))


def _rule(rule: str) -> Iterator[CsvColumn]:
    absent = Reading(None, f"{rule} did not judge this run")

    def column(name: str, text: str, kind: str, pick: Callable[[Finding], CsvCell]) -> CsvColumn:
        return CsvColumn(
            f"{name}_{rule}", text, kind, lambda row: pick(row.findings[rule]) if rule in row.findings else absent
        )

    yield column(
        "outcome",
        "outcome of the rule: pass, warn, fail, error, not_applicable, skipped or waived",
        TEXT,
        lambda one: one.outcome,
    )
    yield column("state", "label of the rule's result, such as CLEARS or UNDERCUT", TEXT, lambda one: one.state)
    yield column(
        "observed",
        "the value that the rule compared with its limit, in the unit of the metric: the value of this run, or the mean over "
        "the seeds counted in `seeds_RULE`",
        NUMBER,
        lambda one: one.observed,
    )
    yield column(
        "seeds",
        "number of runs whose mean is `observed_RULE`, repeated on the line of each of these runs; 1 if `observed_RULE` is "
        "the value of this run; 0 if there is no mean",
        WHOLE,
        lambda one: one.seeds,
    )
    yield column(
        "first_fire",
        "the epoch at which the rule first fires; empty if the rule never fires or is not evaluated by epoch",
        WHOLE,
        _first_fire,
    )


def _first_fire(finding: Finding) -> CsvCell:
    return "" if finding.first_fire is None else finding.first_fire


FILE = ReportFile("audit.csv", "one line per run, for a spreadsheet", write_csv)
