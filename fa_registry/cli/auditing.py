"""The verbs that judge: audit, verify, report, diff; and what they print."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fa_registry import jsonio
from fa_registry.cli import options
from fa_registry.cli.diffing import diffed
from fa_registry.cli.options import (
    ALL_OF,
    DATA,
    DATA_ROOT,
    DEVICE,
    EDITION,
    EDITIONS,
    EPOCHS,
    JSON,
    MEASURING_JOBS,
    OUT,
    REPLAY,
    RUN,
    SCALE,
    SEEDS,
    STORE,
    STUDY,
    TEMPLATES,
    THRESHOLD,
    TRUST,
    WAIVERS,
    examples,
)
from fa_registry.cli.tables import SHORT_ID, table
from fa_registry.workflows import verbs

if TYPE_CHECKING:
    from fa_registry.records import AuditReport, Reproduction
    from fa_registry.workflows.audit import AuditResult
    from fa_registry.workflows.verify import Verification

NOT_INTACT = 3


@click.command()
@STUDY
@RUN
@ALL_OF
@EDITION
@EDITIONS
@THRESHOLD
@WAIVERS
@TRUST
@REPLAY
@MEASURING_JOBS
@EPOCHS
@SEEDS
@DATA
@SCALE
@DEVICE
@OUT
@TEMPLATES
@DATA_ROOT
@STORE
@click.option("--exit-zero", is_flag=True, help="Exit 0 whatever the verdicts.")
@JSON
@examples(
    "audit --study digits",
    "audit --study paper --data digits --scale 0.02",
    "audit --study digits --editions 2026-04,2026-05,2026-11",
    "audit --study digits --threshold D1=100 --waivers waivers.toml --json",
    "audit --run 4f1c… --run 90ab… --trust-logged",
)
def audit(exit_zero: bool, as_json: bool, thresholds: tuple[str, ...], **arguments: Any) -> None:
    """Recompute, judge and report runs. Exit 0: none fails (warnings too), 1: some fail, 3: incomplete or not intact."""
    result = verbs.audit(thresholds=options.thresholds(thresholds), **arguments)
    audited(result, as_json)
    sys.exit(0 if exit_zero else result.exit_code)


@click.command()
@click.argument("report_file", default="", metavar="[REPORT]")
@STUDY
@RUN
@EPOCHS
@SEEDS
@DATA
@SCALE
@DEVICE
@REPLAY
@MEASURING_JOBS
@STORE
@JSON
@examples("verify --study digits", "verify reports/audit.json")
def verify(report_file: str, as_json: bool, **arguments: Any) -> None:
    """Recompute runs from their artifacts, or check that an old audit.json still matches the store. Exit 3 if not."""
    results = verbs.verify(report_file, **arguments)
    verified(results, as_json)
    sys.exit(0 if all(result.integrity.state == "verified" for result in results) else NOT_INTACT)


@click.command()
@click.argument("report_file", default="", metavar="[REPORT]")
@click.option("--study", default="", metavar="NAME", help="The newest audit of a study, from the store.")
@OUT
@TEMPLATES
@STORE
@JSON
@examples(
    "report",
    "report --study methods --out reports",
    "report reports/audit.json --out elsewhere",
    "report --templates my-templates",
)
def report(report_file: str, as_json: bool, **arguments: str) -> None:
    """Render the pages of an audit again, of reports/audit.json unless told otherwise; same records, same bytes."""
    rendered(verbs.report(report_file, **arguments), as_json)


@click.command()
@click.argument("audit_a")
@click.argument("audit_b")
@JSON
@examples("diff reports-before reports", "diff before/audit.json after/audit.json --json")
def diff(audit_a: str, audit_b: str, as_json: bool) -> None:
    """Show what changed between two audits, each an audit.json or its folder. Exit 0: nothing, 1: something.

    Runs are matched by their ids, and those that were trained again by their specifications.
    """
    from fa_registry.workflows.reports import exit_code, run_diff

    found = run_diff(audit_a, audit_b)
    diffed(found, (audit_a, audit_b), as_json)
    sys.exit(exit_code(found))


# What they print.


def audited(result: AuditResult, as_json: bool) -> None:
    """One row a method and setting, then what was waived, reproduced or not judged, and where the report is."""
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
    from fa_registry.quantities import TERMINAL_TABLE, is_scale, quantity_of

    editions = [
        escape(edition_words(one.edition)) for one in report.opinions
    ]  # a user's edition may be called anything
    means = {name: ", geometric mean" if is_scale(name) else "" for name in TERMINAL_TABLE}
    numbers = [f"{quantity_of(name).label}{mean}" for name, mean in means.items()]
    header = ["method", "setting", *numbers, "verdict", *editions, "by seed"]
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


def verified(results: Sequence[Verification], as_json: bool) -> None:
    """One row a run: its outcome, and every difference that was found."""
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


def _rows(report: AuditReport) -> Iterator[list[str]]:
    """One row a method and setting: the leading edition's verdict, then every other edition's."""
    from fa_registry.protocol.grouping import groups
    from fa_registry.protocol.verdict import combined
    from fa_registry.quantities import TERMINAL_TABLE, held, quantity_of
    from fa_registry.reporting.lookups import Frozen, figure_estimate
    from fa_registry.reporting.text.filters import counted

    frozen, known = Frozen.of(report), held(report.cards)
    columns = [quantity_of(name, known) for name in TERMINAL_TABLE]

    opinions = [{one.run_id: one.verdict for one in opinion.judgements} for opinion in report.opinions]
    for group in groups(report):
        yield [
            group.runs[0].record.spec.label,
            group.setting,
            *(
                counted(figure_estimate(group.runs, column, frozen, known), deviation=column.with_deviation)
                for column in columns
            ),
            group.verdict.label,
            *(combined(said[run.record.run_id] for run in group.runs).label for said in opinions),
            " ".join(f"s{run.record.spec.seed}:{run.verdict.label}" for run in group.runs),
        ]


def _reproduced(found: Reproduction) -> None:
    """The figures that these runs say something of; the others are counted, and stand in the report."""
    from fa_registry.reporting.pages.published_figures import (
        WORST_FIRST,
        counts,
        measured_text,
        published_text,
        quantity_text,
    )

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


VERBS = (audit, verify, report, diff)
