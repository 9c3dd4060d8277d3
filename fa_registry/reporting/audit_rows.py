"""The rows of the audit table and the columns of a comparison: a method in a setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fa_registry.metrics import HEADLINE_GAMMA
from fa_registry.protocol.grouping import Group
from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.claims import gamma_answer
from fa_registry.reporting.labels import group_label, options_text
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import (
    LARGEST,
    SEVERITY,
    Columns,
    control_rows,
    control_text,
    scalar_metric,
    seed_row,
    site_row,
)
from fa_registry.reporting.view_models import AuditRow, Judged


def audit_row(group: Group, sources: Sources, columns: Columns, href: str = "") -> AuditRow:
    """Return a method in a setting with its mean over seeds in each column.

    The address of its form is `href`.
    """
    seeds = tuple(seed_row(run, sources.values, columns) for run in group.runs)
    answer = gamma_answer(group.runs, sources.report.cards, sources.left_out(group))
    controls = control_rows(group.runs, sources.values)
    return AuditRow(
        method=group_label(group),
        name=group.method,
        options=options_text(group),
        setting=group.setting,
        control=group.control,
        verdict=group.verdict,
        seeds=seeds,
        estimates={column.name: sources.values.estimate(group.runs, column) for column in columns},
        href=href,
        judged=judged_columns(group, columns),
        answers={HEADLINE_GAMMA: answer} if answer in ("not", "open") else {},
        control_state=control_text(controls),
        control_states=tuple(dict.fromkeys(row.state for row in controls)),
        replays=sources.replays(group),
    )


def judged_columns(group: Group, columns: Columns) -> Mapping[str, Judged]:
    """Return a mapping from column to the most severe finding on the column's metric.

    Only findings with the outcome fail, warn or waived count. Columns without such a finding are omitted. Columns that show a
    standard deviation are omitted too, because their cells have no space for a finding.
    """
    column_of = {
        quantity: column.name
        for column in columns
        if not column.with_deviation
        for quantity in (column.name, column.about)
    }
    seeds_by_judgement: dict[tuple[str, str, str], list[int]] = {}
    for run in group.runs:
        for finding in run.findings:
            if finding.outcome in ("fail", "warn", "waived"):
                for column in {column_of[quantity] for quantity in _crossed(run, finding) if quantity in column_of}:
                    seeds_by_judgement.setdefault((column, finding.rule, finding.outcome), []).append(
                        run.record.spec.seed
                    )
    worst: dict[str, Judged] = {}
    for column, rule, outcome in sorted(seeds_by_judgement, key=lambda key: SEVERITY.index(key[2])):
        worst.setdefault(column, Judged(rule, outcome, tuple(seeds_by_judgement[column, rule, outcome])))
    return worst


def _crossed(run: RunAudit, finding: Finding) -> Iterator[str]:
    """Yield the metric of a finding; for a growth, also the other growths above their limits."""
    yield finding.quantity
    for limit in finding.further if finding.quantity in LARGEST else ():
        readings = site_row(run.record, limit.quantity) or (scalar_metric(run.record, limit.quantity),)
        if limit.quantity in LARGEST and any(
            reading.value is not None and reading.value > limit.threshold for reading in readings
        ):
            yield limit.quantity
