"""The command line: one function a verb, no logic. Heavy imports wait until a verb runs, so that --help is instant."""

from __future__ import annotations

import sys
from typing import Any

import click

from fa_registry import output
from fa_registry.errors import RegistryError
from fa_registry.options import (
    DATA_ROOT,
    DEVICE,
    EDITION,
    EPOCHS,
    EVERY,
    EXPERIMENT,
    FORCE,
    JOBS,
    JSON,
    OUT,
    RUN,
    SEEDS,
    STORE,
    STUDY,
    TEMPLATES,
    TRUST,
    examples,
)


class Verbs(click.Group):
    """Prints this package's errors as one message with their exit code; anything else is a bug and shows its traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except RegistryError as error:
            click.echo(f"fa-registry: {error}", err=True)
            sys.exit(error.exit_code)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fa_registry")
def main() -> None:
    """Feedback-alignment experiments: train, track in MLflow, audit by protocol, report."""


@main.command()
@click.option("--method", default="", help="Credit rule, see `list methods`.")
@click.option("--architecture", default="resmlp", show_default=True)
@click.option("--dataset", default="digits", show_default=True)
@click.option("--seed", default="", help="One integer; required.")
@click.option("--epochs", default="100", show_default=True)
@click.option("--penalty", default="0", show_default=True, help="λ of the residual penalty.")
@click.option("--control", default="none", show_default=True, help="none, frozen or shallow.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="Recipe fields (learning_rate=…) and options (architecture.d_hidden=…, method.…).",
)
@click.option("--study", default="", help="Tag the run as part of a study.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="CPU threads; the last bits depend on it.",
)
@DEVICE
@EXPERIMENT
@EVERY
@DATA_ROOT
@STORE
@FORCE
@JSON
@examples(
    "train --method dfa --seed 7 --epochs 3",
    "train --method dfa --seed 7 --penalty 1e-2 --set architecture.d_hidden=128",
    "train --method bp --control frozen --seed 7",
)
def train(settings: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Train one configuration and log it as one run."""
    from fa_registry.commands.train import run_train

    keep = {
        name: arguments.pop(name)
        for name in ("store", "experiment", "force", "study", "threads", "checkpoint_every", "data_root")
    }
    run_id, result = run_train(output.fields(arguments, settings), **keep)
    output.trained(run_id, result, as_json)


@main.command()
@click.argument("name", default="digits")
@JOBS
@EPOCHS
@SEEDS
@DEVICE
@EXPERIMENT
@EVERY
@DATA_ROOT
@STORE
@FORCE
@JSON
@examples("study digits --jobs 2", "study digits --epochs 3 --seeds 42", "study my/study.toml --json")
def study(name: str, jobs: str, as_json: bool, epochs: str, seeds: str, device: str, **arguments: Any) -> None:
    """Train every run of a study that the store does not hold yet."""
    from fa_registry.commands.study import run_study

    result = run_study(name, output.overrides(epochs, seeds, device), jobs=jobs, **arguments)
    sys.exit(output.studied(result, as_json))


@main.command()
@STUDY
@RUN
@click.option("--experiment", default="", help="All runs of an experiment.")
@EDITION
@TRUST
@EPOCHS
@SEEDS
@DEVICE
@OUT
@TEMPLATES
@DATA_ROOT
@STORE
@click.option("--exit-zero", is_flag=True, help="Exit 0 whatever the verdicts.")
@JSON
@examples("audit --study digits", "audit --study digits --json", "audit --run 4f1c… --run 90ab… --trust-logged")
def audit(exit_zero: bool, as_json: bool, epochs: str, seeds: str, device: str, **arguments: Any) -> None:
    """Recompute, judge and report runs. Exit 0: all pass, 1: some fail, 3: incomplete or not intact."""
    from fa_registry.commands.audit import AuditRequest, run_audit

    result = run_audit(AuditRequest(overrides=output.overrides(epochs, seeds, device), **arguments))
    output.audited(result, as_json)
    sys.exit(0 if exit_zero else result.exit_code)


@main.command()
@click.argument("name", default="digits")
@JOBS
@EPOCHS
@SEEDS
@DEVICE
@OUT
@STORE
@JSON
@examples("run digits", "run digits --epochs 3 --seeds 42 --out quick")
def run(name: str, jobs: str, epochs: str, seeds: str, device: str, out: str, store: str, as_json: bool) -> None:
    """Study, audit and report in one go. Failed verdicts are results here: exit 0."""
    from fa_registry.commands.audit import AuditRequest, run_audit
    from fa_registry.commands.study import run_study

    overrides = output.overrides(epochs, seeds, device)
    studied = run_study(name, overrides, store, jobs=jobs)
    code = output.studied(studied, as_json=False, quiet=as_json)
    if studied.stopped:
        sys.exit(code)
    result = run_audit(AuditRequest(study=name, overrides=overrides, out=out, store=store, adopt=False))
    output.audited(result, as_json)
    sys.exit(3 if result.exit_code == 3 else code)


@main.command()
@click.argument("report_file", default="", metavar="[REPORT]")
@STUDY
@RUN
@EPOCHS
@SEEDS
@DEVICE
@STORE
@JSON
@examples("verify --study digits", "verify reports/audit.json")
def verify(report_file: str, study: str, run_ids: tuple[str, ...], as_json: bool, store: str, **replaced: str) -> None:
    """Recompute runs from their artifacts, or check that an old audit.json still matches the store. Exit 3 if not."""
    from fa_registry.commands import verify as verifying

    if report_file:
        results = verifying.verify_report(output.existing(report_file), store)
    else:
        results = verifying.verify_runs(study, run_ids, output.overrides(**replaced), store)
    output.verified(results, as_json)
    sys.exit(verifying.exit_code(results))


@main.command()
@click.argument("report_file", default="reports/audit.json", metavar="[REPORT]")
@OUT
@TEMPLATES
@JSON
@examples("report", "report reports/audit.json --out elsewhere", "report --templates my-templates")
def report(report_file: str, out: str, templates: str, as_json: bool) -> None:
    """Render the pages of an audit.json again; same records, same bytes."""
    from fa_registry.commands.verify import load_report
    from fa_registry.reporting.render import render_report

    pages = render_report(load_report(output.existing(report_file)), output.folder(out), output.folder(templates))
    output.rendered(pages, as_json)


@main.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@JSON
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0, as code hosts and editors read it.")
@examples("lint .", "lint train.py analysis.ipynb --json", "lint src --sarif > pitfalls.sarif")
def lint(paths: tuple[str, ...], as_json: bool, as_sarif: bool) -> None:
    """Find protocol pitfalls in any code, without importing it. Exit 1: found some, 0: none, 2: nothing to read."""
    from fa_registry import output_lint
    from fa_registry.commands.lint import run_lint

    sys.exit(output_lint.linted(run_lint(paths, as_json, as_sarif), as_json, as_sarif))


@main.command("list")
@click.argument("family", default="methods")
@JSON
@examples("list methods", "list studies --json")
def list_(family: str, as_json: bool) -> None:
    """List methods, architectures, datasets, diagnostics, editions or studies."""
    from fa_registry.commands.listing import members

    output.listed(members(family), as_json)


@main.command()
@click.argument("run_id")
@STORE
@JSON
@examples("show 4f1c0a2b", "show 4f1c0a2b --json")
def show(run_id: str, store: str, as_json: bool) -> None:
    """Show one run: specification, figures site by site, provenance. The first characters of the id will do."""
    from fa_registry.commands import inventory

    output.shown(inventory.show(run_id, store), as_json)


@main.command()
@STORE
@JSON
@examples("doctor", "doctor --store sqlite:///other.db --json")
def doctor(store: str, as_json: bool) -> None:
    """Check versions, device, store and data. Exit 1 if something is not in order."""
    from fa_registry.commands.inventory import examine

    sys.exit(output.examined(examine(store), as_json))
