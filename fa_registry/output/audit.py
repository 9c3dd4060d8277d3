"""What audit, verify and report print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fa_registry import jsonio
from fa_registry.output.tables import SHORT_ID, table

if TYPE_CHECKING:
    from fa_registry.commands.audit import AuditResult
    from fa_registry.commands.verify import Verification
    from fa_registry.records import AuditReport, Reproduction


def audited(result: AuditResult, as_json: bool) -> None:
    report = result.report
    if as_json:
        click.echo(
            jsonio.pretty(
                {
                    "exit_code": result.exit_code,
                    "audit_run_id": result.audit_run_id,
                    "pages": [str(page) for page in result.pages],
                    "report": report,
                }
            ),
            nl=False,
        )
        return
    from rich.markup import escape

    from fa_registry.protocol.shipped import edition_words
    from fa_registry.quantities import quantity_of

    editions = [
        escape(edition_words(one.edition)) for one in report.opinions
    ]  # a user's edition may be called anything
    growth = f"max growth, {quantity_of('growth_max').mean} mean"
    header = ["method", "setting", "accuracy", growth, "verdict", *editions, "by seed"]
    title = f"{report.title} by edition {edition_words(report.edition)}"
    changed = ", ".join(f"{name} = {value}" for name, value in sorted(report.edition.overrides.items()))
    table(header, list(_rows(report)), escape(f"{title} (modified: {changed})" if changed else title))
    if report.reproduction:
        _reproduced(report.reproduction)
    for one in report.excluded:
        click.echo(f"not judged: {one.name}: {one.reason}")
    for one in report.choice.unaudited or () if report.choice else ():
        gone = ", deleted in MLflow" if one.deleted else ""
        click.echo(f"left out: seed {one.spec.seed} of {one.spec.label}, {one.setting}: {one.status}{gone}")
    for remark in report.remarks:
        click.echo(f"note: {remark}")
    click.echo(f"report: {result.pages[0]}")


def _rows(report: AuditReport) -> Iterator[list[str]]:
    """One row a method and setting: the leading edition's verdict, then every other edition's."""
    from fa_registry.protocol.grouping import groups
    from fa_registry.protocol.verdict import combined
    from fa_registry.quantities import quantity_of
    from fa_registry.reporting.filters import counted
    from fa_registry.reporting.readings import scalar_estimate

    opinions = [{one.run_id: one.verdict for one in opinion.judgements} for opinion in report.opinions]
    for group in groups(report):
        yield [
            group.runs[0].record.spec.label,
            group.setting,
            counted(scalar_estimate(group.runs, quantity_of("accuracy"))),
            counted(scalar_estimate(group.runs, quantity_of("growth_max")), deviation=False),
            group.verdict.label,
            *(combined(said[run.record.run_id] for run in group.runs).label for said in opinions),
            " ".join(f"s{run.record.spec.seed}:{run.verdict.label}" for run in group.runs),
        ]


def _reproduced(found: Reproduction) -> None:
    """The figures that these runs say something of; the others are counted, and stand in the report."""
    from fa_registry.reporting.reproduction import WORST_FIRST, counts, measured_text, published_text, quantity_text

    ordered = sorted(found.rows, key=lambda row: WORST_FIRST.index(row.outcome))
    rows = [
        [
            row.outcome,
            row.figure.label,
            quantity_text(row.figure),
            published_text(row.figure),
            measured_text(row),
            row.reason,
        ]
        for row in ordered
        if row.outcome != "not measured"
    ]
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts(found.rows))
    if rows:
        table(["outcome", "method", "figure", "published", "measured", "why"], rows, "Reproduction")
    click.echo(f"reproduction: {words}; every figure with its source is in the report")


def verified(results: Sequence[Verification], as_json: bool) -> None:
    if as_json:
        click.echo(jsonio.pretty(results), nl=False)
        return
    table(
        ["run", "name", "outcome", "details"],
        [[one.run_id[:SHORT_ID], one.name, one.integrity.state, "; ".join(one.integrity.details)] for one in results],
        "",
    )


def rendered(pages: Sequence[Path], as_json: bool) -> None:
    names = [str(page) for page in pages]
    click.echo(jsonio.pretty(names) if as_json else "\n".join(names), nl=not as_json)
