"""What train and study print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fa_registry import jsonio
from fa_registry.output.tables import table

if TYPE_CHECKING:
    from fa_registry.commands.dry_run import Plan, SettingPlan
    from fa_registry.commands.study import StudyResult
    from fa_registry.commands.train import Trained


def trained(run: Trained, as_json: bool) -> None:
    """Prints what became of one run."""
    if as_json:
        fields = {
            "run_id": run.run_id,
            "status": run.status,
            "ended_by": run.ended_by,
            "trained": run.result is not None,
            "other_code": list(run.other_code),
            "headline": run.result.headline if run.result else {},
            "first_fire": run.result.fired if run.result else {},
        }
        click.echo(jsonio.pretty(fields), nl=False)
        return
    status = f"{run.status.replace('_', ' ')} ({run.ended_by})" if run.ended_by else run.status
    click.echo(f"run {run.run_id}: " + (status if run.result else f"already {status} (--force trains it again)"))


def studied(result: StudyResult, as_json: bool, quiet: bool = False) -> int:
    """Prints the study's outcome (errors alone if quiet); returns its exit code."""
    if as_json:
        names = ("study", "present", "trained", "stopped_early", "failed", "stopped", "other_code")
        click.echo(jsonio.pretty({name: getattr(result, name) for name in names}), nl=False)
        return result.exit_code
    counts = {
        "already complete": result.present,
        "trained": result.trained,
        "stopped early": result.stopped_early,
        "failed": result.failed,
        "stopped": result.stopped,
    }
    if not quiet:
        words = ", ".join(f"{len(runs)} {word}" for word, runs in counts.items() if runs)
        click.echo(f"study {result.study}: {words}")
    for name, error in result.failed.items():
        click.echo(f"\n{name} failed:\n{error}", err=True)
    if result.stopped:
        click.echo("stopped on request; the same command goes on from there", err=True)
    return result.exit_code


def planned(plan: Plan, as_json: bool) -> int:
    """Prints what a study would train; returns its exit code."""
    if as_json:
        click.echo(jsonio.pretty(plan), nl=False)
        return plan.exit_code
    name = " ".join(word for word in ("study", plan.study, plan.twin) if word)
    click.echo(f"{name}: {plan.title}")
    click.echo(
        f"{plan.runs} runs ({plan.control_runs} of them controls) in {len(plan.settings)} settings, {plan.complete} complete, "
        f"{plan.runs - plan.complete} to train; edition {plan.edition}"
    )
    click.echo(f"{len(plan.methods)} methods: {', '.join(plan.methods)}")
    header = ["setting", "called", "methods", "seeds", "runs", "controls", "complete", "all", "to train"]
    table(header, [_planned_row(setting) for setting in plan.settings], "")
    if plan.probed:
        click.echo(
            f"one process: {_duration(plan.seconds)} for all, {_duration(plan.seconds_left)} for what is to train; "
            f"{plan.jobs} at a time: {_duration(plan.seconds_left_by_jobs)}"
        )
    for setting in plan.settings:
        if setting.problem:
            click.echo(f"{setting.setting} cannot be run: {setting.problem}", err=True)
    for remark in plan.remarks:
        click.echo(remark)
    return plan.exit_code


def _planned_row(setting: SettingPlan) -> list[str]:
    controls = ", ".join(f"{count} {name}" for name, count in setting.controls.items())
    return [
        setting.setting,
        ", ".join(setting.labels),
        ", ".join(setting.methods),
        ", ".join(map(str, setting.seeds)),
        str(setting.runs),
        controls or "none",
        str(setting.complete),
        _duration(setting.seconds),
        _duration(setting.seconds_left),
    ]


def _duration(seconds: float | None) -> str:
    """`45 s`, `12 min`, `3.4 h`; N/A where nothing was probed."""
    if seconds is None:
        return "N/A"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
