"""The commands `train`, `study`, `worker` and `run`, and their output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from fa_registry.cli import options, shell_completion
from fa_registry.cli.audit import audited
from fa_registry.cli.options import (
    ARCHITECTURE,
    CLUSTER_OPTIONS,
    DATA_ROOT,
    DATASET,
    DEVICE,
    EDITION,
    EDITIONS,
    EXPERIMENT,
    FORCE,
    JOBS,
    JSON,
    KEEP_TRAINED,
    METHOD,
    MOST_THREADS,
    OUT,
    PENALTY,
    SEED,
    SET,
    STOP_ON,
    STORE,
    STUDY_OVERRIDES,
    TRAINING,
    examples,
)
from fa_registry.cli.tables import print_json, print_out, print_page, table
from fa_registry.errors import UsageError
from fa_registry.workflows import api

if TYPE_CHECKING:
    from fa_registry.workflows.dry_run import Plan, SettingPlan
    from fa_registry.workflows.study import StudyResult


@click.command()
@METHOD
@ARCHITECTURE
@DATASET
@SEED
@click.option("--epochs", default="100", show_default=True)
@PENALTY
@click.option(
    "--control",
    default="none",
    show_default=True,
    help="Control to train: none, frozen, shallow, or ladder_K (only the last K blocks are trained).",
    shell_complete=shell_completion.choices("none", "frozen", "shallow", "ladder_"),
)
@SET
@click.option("--study", default="", help="Tag the run as part of a study.", shell_complete=shell_completion.studies())
@click.option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    default=1,
    show_default=True,
    help="Number of CPU threads. The last bits of results depend on this number.",
)
@DEVICE
@TRAINING
@JSON
@examples(
    "train --method dfa --seed 7 --epochs 3",
    "train --method dfa --seed 7 --penalty 1e-2 --set architecture.d_hidden=128",
    "train --method bp --control frozen --seed 7",
    "train --method dfa --seed 7 --stop-on D1,D2 --edition 2026-05",
)
def train(settings: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Train one configuration and log it as one run.

    If the store has a finished run of the configuration, nothing is trained.
    """
    run = api.train(settings=options.settings(settings), **arguments)
    if as_json:
        print_json(
            {
                "run_id": run.run_id,
                "status": run.status,
                "ended_by": run.ended_by,
                "trained": run.result is not None,
                "other_code": list(run.other_code),
                "headline": run.result.headline if run.result else {},
                "first_fire": run.result.fired if run.result else {},
                "page": run.page,
            }
        )
        return
    status = f"{run.status.replace('_', ' ')} ({run.ended_by})" if run.ended_by else run.status
    print_out(f"run {run.run_id}: " + (status if run.result else f"already {status} (--force trains it again)"))
    print_page(run.page)


@click.command()
@click.argument("name", default="digits", shell_complete=shell_completion.studies())
@JOBS
@CLUSTER_OPTIONS
@STUDY_OVERRIDES
@TRAINING
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print which runs would be trained and an estimate of the time; train and write nothing.",
)
@click.option(
    "--no-timing",
    "no_probe",
    is_flag=True,
    help="With --dry-run: measure no training steps, and print no estimate of the time.",
)
@JSON
@examples(
    "study digits --jobs 2",
    "study digits --epochs 3 --seeds 42",
    "study digits --stop-on D1",
    "study paper-full --dry-run --no-timing",
    "study paper --replace-dataset digits --scale 0.02 --jobs 2",
    "study my/study.toml --json",
    "study paper --store http://registry:5000 --executor ray --address head:6379 --memory 4GiB",
)
def study(name: str, as_json: bool, dry_run: bool, no_probe: bool, **arguments: Any) -> None:
    """Train the runs of a study that are not in the store yet.

    NAME is a built-in study, or the path of a study.toml or of its folder. Exit 0: all runs ended as requested, 1: a run failed,
    130: the study was stopped.
    """
    if no_probe and not dry_run:
        raise UsageError("--no-timing needs --dry-run")
    result = api.study(name, dry_run=dry_run, no_probe=no_probe, **arguments)
    sys.exit((planned if dry_run else studied)(result, as_json))


@click.command(short_help="Train the runs of a study that no other worker trains.")
@click.argument("names", nargs=-1, required=True, metavar="STUDY…", shell_complete=shell_completion.studies())
@JOBS
@CLUSTER_OPTIONS
@STUDY_OVERRIDES
@TRAINING
@JSON
@examples(
    "worker digits",
    "worker digits paper --store http://registry:5000 --heartbeat-timeout 300",
    "worker paper --jobs 4 --experiment team",
)
def worker(names: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Start a worker, which trains the runs of a study that no other worker trains.

    The worker ends when every run of the studies is finished or is trained by another worker. Many workers can run at the same
    time, on all machines that can connect to the store: see docs/many-machines.md.
    """
    sys.exit(max([studied(api.work(name, **arguments), as_json) for name in names]))


@click.command()
@click.argument("name", default="digits", shell_complete=shell_completion.studies())
@JOBS
@STUDY_OVERRIDES
@EDITION
@EDITIONS
@STOP_ON
@EXPERIMENT
@FORCE
@KEEP_TRAINED
@OUT
@DATA_ROOT
@STORE
@JSON
@examples(
    "run digits",
    "run digits --epochs 3 --seeds 42 --out quick",
    "run digits --editions 2026-05,2026-12",
    "run paper --data-root ~/data --experiment paper",
    "run paper --replace-dataset digits --scale 0.02",
    "run digits --stop-on D1,D2",
)
def run(name: str, jobs: str, edition: str, editions: str, out: str, as_json: bool, **arguments: Any) -> None:
    """Train a study, audit its runs, and write the report.

    Exit 0: all runs ended as requested, even if verdicts fail or --stop-on ended runs. 1: the training of a run failed. 3: the
    audit is incomplete, or a file or metric differs from what was recorded.
    """
    from fa_registry.workflows.audit import checked_audit, run_audit
    from fa_registry.workflows.editions import leading_edition
    from fa_registry.workflows.options import (
        JudgingOptions,
        RemeasureOptions,
        ReportOutput,
        RunSelector,
        StoreLocation,
        as_list,
        overrides,
    )
    from fa_registry.workflows.study import checked_study, run_study

    training = {option: arguments.pop(option) for option in ("stop_on", "force", "keep_trained")}
    location = StoreLocation(*(arguments.pop(option) for option in ("store", "experiment", "data_root")))
    selector = RunSelector(name, overrides=overrides(**arguments))
    judging, measuring, pages = (
        JudgingOptions(edition, as_list(editions)),
        RemeasureOptions(jobs=jobs, device=arguments["device"]),
        ReportOutput(out),
    )
    leading = leading_edition(selector, judging)
    checked_study(selector, jobs, leading, training["stop_on"], "")
    checked_audit(selector, judging, measuring, pages)  # find invalid options before training
    result = run_study(selector, location, jobs, leading, **training)
    code = studied(result, as_json=False, quiet=as_json)
    if result.stopped:
        sys.exit(code)
    audit = run_audit(selector, judging, measuring, location, pages, adopt=False, early_is_incomplete=False)
    audited(audit, as_json)
    sys.exit(3 if audit.exit_code == 3 else code)


# Output.


def studied(result: StudyResult, as_json: bool, quiet: bool = False) -> int:
    """Print the result of training a study, or only the errors if `quiet` is set; return the exit code."""
    if as_json:
        names = (
            "study",
            "present",
            "trained",
            "elsewhere",
            "left",
            "stopped_early",
            "failed",
            "stopped",
            "other_code",
            "page",
        )
        print_json({name: getattr(result, name) for name in names})
        return result.exit_code
    counts = {
        "already complete": result.present,
        "trained": result.trained,
        "trained by other processes": result.elsewhere,
        "still trained by other processes": result.left,
        "stopped early": result.stopped_early,
        "failed": result.failed,
        "stopped": result.stopped,
    }
    if not quiet:
        text = ", ".join(f"{len(runs)} {label}" for label, runs in counts.items() if runs)
        print_out(f"study {result.study}: {text}")
        print_page(result.page)
    for name, error in result.failed.items():
        print_out("", f"{name} failed:", *error.split("\n"), err=True)
    if result.stopped:
        print_out("stopped on request; the same command resumes the runs", err=True)
    return result.exit_code


def planned(plan: Plan, as_json: bool) -> int:
    """Print which runs a study would train; return the exit code."""
    if as_json:
        print_json(plan)
        return plan.exit_code
    name = " ".join(part for part in ("study", plan.study, plan.twin) if part)
    print_out(f"{name}: {plan.title}")
    print_out(
        f"{plan.runs} runs ({plan.control_runs} of them controls) in {len(plan.settings)} settings, {plan.complete} complete, "
        f"{plan.runs - plan.complete} to train; edition {plan.edition}"
    )
    print_out(f"{len(plan.methods)} methods: {', '.join(plan.methods)}")
    header = ["setting", "called", "methods", "seeds", "runs", "controls", "complete", "all", "to train"]
    table(header, [_planned_row(setting) for setting in plan.settings], "")
    if plan.seconds is not None:
        from fa_registry.workflows.progress import duration

        print_out(
            f"estimated time with {plan.jobs} runs at a time: {duration(plan.seconds_by_jobs)} for all runs, "
            f"{duration(plan.seconds_left_by_jobs)} for the runs to train; "
            f"estimated time in one process: {duration(plan.seconds)} for all runs, {duration(plan.seconds_left)} for "
            f"the runs to train"
        )
    for setting in plan.settings:
        if setting.problem:
            print_out(f"{setting.setting} cannot be run: {setting.problem}", err=True)
    for remark in plan.remarks:
        print_out(remark)
    return plan.exit_code


def _planned_row(setting: SettingPlan) -> list[str]:
    from fa_registry.workflows.progress import duration

    controls = ", ".join(f"{count} {name}" for name, count in setting.controls.items())
    return [
        setting.setting,
        ", ".join(setting.labels),
        ", ".join(setting.methods),
        ", ".join(map(str, setting.seeds)),
        str(setting.runs),
        controls or "none",
        str(setting.complete),
        duration(setting.seconds),
        duration(setting.seconds_left),
    ]


COMMANDS = (train, study, worker, run)
