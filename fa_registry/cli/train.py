"""The commands `train`, `study`, `worker` and `run`, and their output."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fa_registry import api
from fa_registry.audits.options import JudgingOptions, ReportOutput
from fa_registry.cli.audit import audited
from fa_registry.cli.options import JSON, completer, examples, takes
from fa_registry.cli.tables import print_json, print_out, print_result, table
from fa_registry.errors import pluralise
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.option_table import build
from fa_registry.studies.options import ExecutorOptions, RunSelector, StoreLocation, StudyOverrides, TrainingOptions

if TYPE_CHECKING:
    from fa_registry.studies.dry_run import Plan
    from fa_registry.studies.study_command import StudyResult

RUN = "jobs epochs seeds data scale settings device edition editions stop_on force keep_trained out store experiment data_root"
STUDY_FIELDS = "study present trained elsewhere left stopped_early failed stopped other_code page"  # in JSON


@click.command()
@takes(api.train, without="executor")
@JSON
@examples(
    "train --method dfa --seed 7 --epochs 3",
    "train --method dfa --seed 7 --penalty 1e-2 --set architecture.d_hidden=128",
    "train --method bp --control frozen --seed 7",
    "train --method dfa --seed 7 --stop-on D1,D2 --edition 2026-05",
)
def train(as_json: bool, **arguments: Any) -> None:
    """Train one configuration and log it as one run.

    If the store has a finished run of the configuration, nothing is trained.
    """
    run = api.train(**arguments)
    fields = {
        "run_id": run.run_id,
        "status": run.status,
        "ended_by": run.ended_by,
        "trained": run.result is not None,
        "other_code": list(run.other_code),
        "headline": run.result.headline if run.result else {},
        "first_fire": run.result.fired if run.result else {},
        "page": run.page,
    }
    print_result(fields, as_json, *run.lines())


@click.command()
@click.argument("name", default="digits", shell_complete=completer("studies"))
@takes(api.study, argument="study files")
@JSON
@examples(
    "study digits --jobs 2",
    "study digits --epochs 3 --seeds 42",
    "study digits --stop-on D1",
    "study digits --set learning_rate=1e-3,3e-3 --dry-run",
    "study paper-full --dry-run",
    "study paper --replace-dataset digits --scale 0.02 --jobs 2",
    "study my/study.toml --json",
    "study paper --store http://registry:5000 --executor ray --address head:6379 --memory 4GiB",
)
def study(name: str, as_json: bool, dry_run: bool, **arguments: Any) -> None:
    """Train the runs of a study that are not in the store yet.

    NAME is a built-in study (default: digits), or the path of a study.toml or of its folder. Exit 0: all runs ended as requested,
    1: a run failed, 130: the study was stopped.
    """
    result = api.study(name, dry_run=dry_run, **arguments)
    sys.exit((planned if dry_run else studied)(result, as_json))


@click.command(short_help="Train those runs of a study that no other worker is training.")
@click.argument("names", nargs=-1, required=True, metavar="STUDY…", shell_complete=completer("studies"))
@takes(api.work, argument="study files")
@JSON
@examples(
    "worker digits",
    "worker digits paper --store http://registry:5000 --heartbeat-timeout 300",
    "worker paper --jobs 4 --experiment team",
)
def worker(names: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Start a worker. A worker trains those runs of a study that no other worker is training.

    The worker ends when every run of the studies is finished or is trained by another worker. Many workers can run at the same
    time, on all machines that can connect to the store: see docs/many-machines.md.
    """
    sys.exit(max([studied(api.work(name, **arguments), as_json) for name in names]))


@click.command()
@click.argument("name", default="digits", shell_complete=completer("studies"))
@takes(
    ExecutorOptions,
    StudyOverrides,
    JudgingOptions,
    TrainingOptions,
    ReportOutput,
    StoreLocation,
    only=RUN,
    argument="study files",
)
@JSON
@examples(
    "run digits",
    "run digits --epochs 3 --seeds 42 --out quick",
    "run digits --editions 2026-05,2026-12",
    "run paper --data-root ~/data --experiment paper",
    "run paper --replace-dataset digits --scale 0.02",
    "run digits --stop-on D1,D2",
)
def run(name: str, as_json: bool, **arguments: Any) -> None:
    """Train a study, audit its runs, and write the report.

    Exit 0: all runs ended as requested. Failed verdicts and runs that --stop-on ended do not change this code. 1: the training of
    a run failed. 3: the audit is incomplete, or a file or metric differs from what was recorded.
    """
    from fa_registry.audits.audit_command import checked_audit, run_audit
    from fa_registry.audits.editions import leading_edition
    from fa_registry.studies.study_command import checked_study, run_study

    groups = (StoreLocation, TrainingOptions, ExecutorOptions, JudgingOptions, RemeasureOptions, ReportOutput)
    location, training, execution, judging, measuring, pages = (build(group, arguments) for group in groups)
    selector = RunSelector(name, overrides=build(StudyOverrides, arguments).by_name)
    training = replace(training, edition=leading_edition(selector, judging))
    checked_study(selector, training, execution)
    checked_audit(selector, judging, measuring, pages)  # find invalid options before training
    result = run_study(selector, location, training, execution)
    # without a stop, the audit prints the address of the page again
    code = studied(result if result.stopped else replace(result, page=""), as_json=False, quiet=as_json)
    if result.stopped:
        sys.exit(code)
    audit = run_audit(selector, judging, measuring, location, pages, adopt=False, early_is_incomplete=False)
    audited(audit, as_json)
    sys.exit(3 if audit.exit_code == 3 else code)


def studied(result: StudyResult, as_json: bool, quiet: bool = False) -> int:
    """Print the result of training a study, or only the errors if `quiet` is set; return the exit code."""
    if as_json:
        print_json({name: getattr(result, name) for name in STUDY_FIELDS.split()})
        return result.exit_code
    if not quiet:
        print_out(*result.lines())
    for name, error in result.failed.items():
        print_out("", f"{name} failed:", *error.split("\n"), err=True)
    if result.stopped:
        print_out("stopped on request; the same command resumes the runs", err=True)
    return result.exit_code


def planned(plan: Plan, as_json: bool) -> int:
    """Print which runs a study would train; return the exit code."""
    if as_json:
        print_json({**vars(plan), "settings": [vars(setting) for setting in plan.settings]})
        return plan.exit_code
    name = " ".join(part for part in ("study", plan.study, plan.twin) if part)
    print_out(f"{name}: {plan.title}")
    print_out(
        f"{pluralise(plan.runs, 'run')} (controls: {plan.control_runs}) in {pluralise(len(plan.settings), 'setting')}, "
        f"{plan.complete} complete, {plan.runs - plan.complete} to train; edition {plan.edition}"
    )
    print_out(f"{pluralise(len(plan.methods), 'method')}: {', '.join(plan.methods)}")
    header = ["setting", "called", "methods", "seeds", "runs", "controls", "complete", "to train"]
    table(header, [[*map(str, row.values())] for row in plan.rows()], "")
    for remark in plan.remarks:
        print_out(remark)
    return plan.exit_code


COMMANDS = (train, study, worker, run)
