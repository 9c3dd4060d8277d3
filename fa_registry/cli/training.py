"""The verbs that train: train, study, and run (study, audit and report in one go)."""

from __future__ import annotations

import sys
from typing import Any

import click

from fa_registry.cli import parsing
from fa_registry.cli.options import (
    DATA,
    DATA_ROOT,
    DEVICE,
    EDITION,
    EPOCHS,
    EVERY,
    EXPERIMENT,
    FORCE,
    JOBS,
    JSON,
    KEEP_TRAINED,
    OUT,
    SCALE,
    SEEDS,
    STOP_ON,
    STORE,
    examples,
)
from fa_registry.errors import UsageError
from fa_registry.output.audit import audited
from fa_registry.output.training import planned, studied, trained


@click.command()
@click.option("--method", default="", help="Credit rule, see `list methods`.")
@click.option("--architecture", default="resmlp", show_default=True)
@click.option("--dataset", default="digits", show_default=True)
@click.option("--seed", default="", help="One integer; required.")
@click.option("--epochs", default="100", show_default=True)
@click.option("--penalty", default="0", show_default=True, help="λ of the residual penalty.")
@click.option(
    "--control", default="none", show_default=True, help="none, frozen, shallow, or ladder_K (the last K blocks learn)."
)
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
@EDITION
@STOP_ON
@EXPERIMENT
@EVERY
@DATA_ROOT
@STORE
@FORCE
@KEEP_TRAINED
@JSON
@examples(
    "train --method dfa --seed 7 --epochs 3",
    "train --method dfa --seed 7 --penalty 1e-2 --set architecture.d_hidden=128",
    "train --method bp --control frozen --seed 7",
    "train --method dfa --seed 7 --stop-on D1,D2 --edition 2026-05",
)
def train(settings: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Train one configuration and log it as one run."""
    from fa_registry.commands.train import run_train

    keep = {
        name: arguments.pop(name)
        for name in ("store", "experiment", "force", "study", "threads", "checkpoint_every", "data_root", "edition")
    }
    keep |= {name: arguments.pop(name) for name in ("stop_on", "keep_trained")}
    trained(run_train(parsing.fields(arguments, settings), **keep), as_json)


@click.command()
@click.argument("name", default="digits")
@JOBS
@EPOCHS
@SEEDS
@DATA
@SCALE
@DEVICE
@EDITION
@STOP_ON
@EXPERIMENT
@EVERY
@DATA_ROOT
@STORE
@FORCE
@KEEP_TRAINED
@click.option("--dry-run", is_flag=True, help="Print what would be trained and what it would take; write nothing.")
@click.option("--no-probe", is_flag=True, help="With --dry-run: time no steps, give no cost.")
@JSON
@examples(
    "study digits --jobs 2",
    "study digits --epochs 3 --seeds 42",
    "study digits --stop-on D1",
    "study paper-full --dry-run --no-probe",
    "study paper --data digits --scale 0.02 --jobs 2",
    "study my/study.toml --json",
)
def study(name: str, as_json: bool, dry_run: bool, no_probe: bool, **given: Any) -> None:
    """Train every run of a study that the store does not hold yet."""
    replaced = {option: given.pop(option) for option in ("epochs", "seeds", "device", "data", "scale")}
    overrides = parsing.overrides(**replaced)
    if no_probe and not dry_run:
        raise UsageError("--no-probe belongs to --dry-run, which is missing")
    if dry_run:
        from fa_registry.commands.dry_run import plan_study

        asked = {option: given[option] for option in ("store", "jobs", "edition", "stop_on", "force", "keep_trained")}
        sys.exit(planned(plan_study(name, overrides, **asked, probing=not no_probe), as_json))
    from fa_registry.commands.study import run_study

    sys.exit(studied(run_study(name, overrides, **given), as_json))


@click.command()
@click.argument("name", default="digits")
@JOBS
@EPOCHS
@SEEDS
@DATA
@SCALE
@DEVICE
@EDITION
@STOP_ON
@KEEP_TRAINED
@OUT
@STORE
@JSON
@examples(
    "run digits",
    "run digits --epochs 3 --seeds 42 --out quick",
    "run paper --data digits --scale 0.02",
    "run digits --stop-on D1,D2",
)
def run(
    name: str, epochs: str, seeds: str, data: str, scale: str, device: str, out: str, as_json: bool, **arguments: Any
) -> None:
    """Study, audit and report in one go. Failed verdicts, and runs that --stop-on ends, are results here: exit 0."""
    from fa_registry.commands.audit import AuditRequest, run_audit
    from fa_registry.commands.study import run_study

    overrides = parsing.overrides(epochs, seeds, device, data, scale)
    result = run_study(name, overrides, **arguments)
    code = studied(result, as_json=False, quiet=as_json)
    if result.stopped:
        sys.exit(code)
    arguments.pop("stop_on")
    arguments.pop("keep_trained")
    audit = run_audit(
        AuditRequest(study=name, overrides=overrides, out=out, adopt=False, early_is_incomplete=False, **arguments)
    )
    audited(audit, as_json)
    sys.exit(3 if audit.exit_code == 3 else code)


VERBS = (train, study, run)
