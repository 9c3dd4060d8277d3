"""What the verbs print: tables for people, JSON for machines. Progress goes to standard error, results to standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, UsageError

if TYPE_CHECKING:
    from fa_registry.commands.audit import AuditResult
    from fa_registry.commands.study import StudyResult
    from fa_registry.commands.training import TrainingResult
    from fa_registry.commands.verify import Verification
    from fa_registry.records import Reading, RunRecord

SHORT_ID = 8


def fields(arguments: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Spec fields from the options and the `--set name=value,…` pairs; dotted names go into their options."""
    raw: dict[str, Any] = {**arguments, "method_options": {}, "architecture_options": {}}
    problems = []
    for setting in [one for several in settings for one in several.split(",") if one]:
        name, separator, value = setting.partition("=")
        owner, dot, option = name.partition(".")
        if not separator:
            problems.append(f"--set {setting}: expected NAME=VALUE")
        elif dot and f"{owner}_options" in raw:
            raw[f"{owner}_options"][option] = value
        else:
            raw[name] = value
    if problems:
        raise InvalidFields("settings", problems)
    return raw


def overrides(epochs: str, seeds: str, device: str) -> dict[str, Any]:
    """What the command line replaces in a study."""
    return {"epochs": epochs, "seeds": [seed for seed in seeds.split(",") if seed], "device": device}


def existing(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"{name}: no such file; `fa-registry audit` writes one")
    return path


def folder(name: str) -> Path | None:
    return Path(name) if name else None


def trained(run_id: str, result: TrainingResult | None, as_json: bool) -> None:
    status = result.status if result else "already complete"
    headline = result.headline if result else {}
    if as_json:
        click.echo(
            jsonio.pretty({"run_id": run_id, "status": status, "trained": result is not None, "headline": headline}),
            nl=False,
        )
    else:
        hint = "" if result else " (--force trains it again)"
        click.echo(f"run {run_id}: {status}{hint}")


def studied(result: StudyResult, as_json: bool, quiet: bool = False) -> int:
    """Prints the study's outcome (errors alone if quiet); returns its exit code."""
    if as_json:
        click.echo(
            jsonio.pretty(
                {
                    "study": result.study,
                    "present": result.present,
                    "trained": result.trained,
                    "failed": result.failed,
                    "stopped": result.stopped,
                }
            ),
            nl=False,
        )
        return result.exit_code
    counts = {
        "already complete": result.present,
        "trained": result.trained,
        "failed": result.failed,
        "stopped": result.stopped,
    }
    if not quiet:
        click.echo(
            f"study {result.study}: " + ", ".join(f"{len(runs)} {word}" for word, runs in counts.items() if runs)
        )
    for name, error in result.failed.items():
        click.echo(f"\n{name} failed:\n{error}", err=True)
    if result.stopped:
        click.echo("stopped on request; the same command goes on from there", err=True)
    return result.exit_code


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
    from fa_registry.protocol.grouping import groups

    rows = [
        [
            group.method,
            group.setting,
            _mean(group.runs, "accuracy"),
            _mean(group.runs, "growth_max"),
            group.verdict.label,
            " ".join(f"s{run.record.spec.seed}:{run.verdict.label}" for run in group.runs),
        ]
        for group in groups(report)
    ]
    _table(
        ["method", "setting", "accuracy", "max growth", "verdict", "by seed"],
        rows,
        f"{report.title} by edition {report.edition.name}",
    )
    for one in report.excluded:
        click.echo(f"not judged: {one.name}: {one.reason}")
    for remark in report.remarks:
        click.echo(f"note: {remark}")
    click.echo(f"report: {result.pages[0]}")


def verified(results: Sequence[Verification], as_json: bool) -> None:
    if as_json:
        click.echo(jsonio.pretty(results), nl=False)
        return
    _table(
        ["run", "name", "outcome", "details"],
        [[one.run_id[:SHORT_ID], one.name, one.integrity.state, "; ".join(one.integrity.details)] for one in results],
        "",
    )


def rendered(pages: Sequence[Path], as_json: bool) -> None:
    names = [str(page) for page in pages]
    click.echo(jsonio.pretty(names) if as_json else "\n".join(names), nl=not as_json)


def listed(rows: Sequence[Mapping[str, str]], as_json: bool) -> None:
    if as_json:
        click.echo(jsonio.pretty(rows), nl=False)
    else:
        _table(["name", "what", "file"], [[row["name"], row["line"], row["file"]] for row in rows], "")


def shown(record: RunRecord, as_json: bool) -> None:
    if as_json:
        click.echo(jsonio.pretty(record), nl=False)
        return
    click.echo(f"{record.name}\nrun {record.run_id} · {record.status} · {record.setting}")
    count = max((len(row) for row in record.measurements.sites.values()), default=0)
    rows = [[name, *(_text(reading) for reading in row)] for name, row in record.measurements.sites.items()]
    _table(["quantity", *(f"site {site}" for site in range(count))], rows, "by site")
    _table(
        ["quantity", "value"],
        [[name, _text(reading)] for name, reading in record.measurements.scalars.items()],
        "scalars",
    )
    _table(["field", "value"], [[name, str(value)] for name, value in record.provenance.items()], "provenance")


def examined(rows: Sequence[Mapping[str, Any]], as_json: bool) -> int:
    """Prints the checks; returns 1 if one is not in order."""
    if as_json:
        click.echo(jsonio.pretty(rows), nl=False)
    else:
        _table(
            ["check", "", "found"],
            [[row["check"], "ok" if row["ok"] else "NOT OK", str(row["found"])] for row in rows],
            "",
        )
    return 0 if all(row["ok"] for row in rows) else 1


def _mean(runs: Sequence[Any], name: str) -> str:
    values = [run.record.measurements.scalars[name].value for run in runs]
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.4g}" if known else "N/A"


def _text(reading: Reading) -> str:
    return f"{reading.value:.4g}" if reading.value is not None else "N/A"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: names come from outside and may hold markup
    console = Console()
    console.width = console.width if console.is_terminal else 200
    console.print(table)
