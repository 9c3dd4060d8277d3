"""The verbs that judge: audit, verify, report, diff."""

from __future__ import annotations

import sys
from typing import Any

import click

from fa_registry.cli import parsing
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
from fa_registry.output.audit import audited, rendered, verified
from fa_registry.output.diff import diffed


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
def audit(
    exit_zero: bool,
    as_json: bool,
    epochs: str,
    seeds: str,
    device: str,
    data: str,
    scale: str,
    editions: str,
    thresholds: tuple[str, ...],
    **arguments: Any,
) -> None:
    """Recompute, judge and report runs. Exit 0: none fails (warnings too), 1: some fail, 3: incomplete or not intact."""
    from fa_registry.commands.audit import AuditRequest, run_audit

    request = AuditRequest(
        overrides=parsing.overrides(epochs, seeds, device, data, scale),
        editions=parsing.names(editions),
        thresholds=parsing.thresholds(thresholds),
        **arguments,
    )
    result = run_audit(request)
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
def verify(
    report_file: str,
    study: str,
    run_ids: tuple[str, ...],
    as_json: bool,
    store: str,
    jobs: str,
    replay: str,
    **replaced: str,
) -> None:
    """Recompute runs from their artifacts, or check that an old audit.json still matches the store. Exit 3 if not."""
    from fa_registry.commands import verify as verifying

    verifying.check_choice(report_file, study, run_ids)
    if report_file:
        results = verifying.verify_report(parsing.existing(report_file), store)
    else:
        results = verifying.verify_runs(study, run_ids, parsing.overrides(**replaced), store, jobs, replay)
    verified(results, as_json)
    sys.exit(verifying.exit_code(results))


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
def report(report_file: str, study: str, out: str, templates: str, store: str, as_json: bool) -> None:
    """Render the pages of an audit again, of reports/audit.json unless told otherwise; same records, same bytes."""
    from fa_registry.commands.report import run_report

    rendered(run_report(report_file, study, out, templates, store), as_json)


@click.command()
@click.argument("audit_a")
@click.argument("audit_b")
@JSON
@examples("diff reports-before reports", "diff before/audit.json after/audit.json --json")
def diff(audit_a: str, audit_b: str, as_json: bool) -> None:
    """Show what changed between two audits, each an audit.json or its folder. Exit 0: nothing, 1: something.

    Runs are matched by their ids, and those that were trained again by their specifications.
    """
    from fa_registry.commands.diff import exit_code, run_diff

    found = run_diff(audit_a, audit_b)
    diffed(found, (audit_a, audit_b), as_json)
    sys.exit(exit_code(found))


VERBS = (audit, verify, report, diff)
