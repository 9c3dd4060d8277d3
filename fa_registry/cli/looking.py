"""The verbs that look (lint, list, card, show, doctor, data), and optimize; and what they print."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fa_registry import jsonio
from fa_registry.cli.options import DATA_ROOT, JSON, STORE, examples, folder
from fa_registry.cli.tables import table, text
from fa_registry.errors import IntegrityError, UsageError
from fa_registry.lint.base import LintFinding, LintReport
from fa_registry.lint.linting import lint_paths, sarif

if TYPE_CHECKING:
    from fa_registry.records import RunRecord
    from fa_registry.workflows.looking import Optimized


BOUNDS = {"least": "at least", "above": "more than", "choices": "one of"}  # of an option: words before the bound


ACTIONS = ("list", "where", "fetch", "check")


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@JSON
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0, as code hosts and editors read it.")
@examples("lint .", "lint train.py analysis.ipynb --json", "lint src --sarif > pitfalls.sarif")
def lint(paths: tuple[str, ...], as_json: bool, as_sarif: bool) -> None:
    """Find protocol pitfalls in any code, without importing it. Exit 1: found some, 0: none, 2: nothing to read."""

    sys.exit(linted(run_lint(paths, as_json, as_sarif), as_json, as_sarif))


@click.command("list")
@click.argument("family", default="methods")
@JSON
@examples("list methods", "list studies --json")
def list_(family: str, as_json: bool) -> None:
    """List methods, architectures, datasets, diagnostics, analyses, editions, studies or templates."""
    from fa_registry.workflows.looking import members

    listed(members(family), as_json)


@click.command()
@click.argument("name")
@click.option("--family", default="", help="Where the name is to be looked up [methods first].")
@JSON
@examples("card dfa", "card gamma --family diagnostics --json")
def card(name: str, family: str, as_json: bool) -> None:
    """Show all that is declared of a method, architecture, data set or diagnostic: equations, deviations, options, source."""
    from fa_registry.workflows.looking import card_of

    carded(card_of(name, family), as_json)


@click.command()
@click.argument("run_id")
@STORE
@JSON
@examples("show 4f1c0a2b", "show 4f1c0a2b --json")
def show(run_id: str, store: str, as_json: bool) -> None:
    """Show one run: specification, figures site by site, provenance. The first characters of the id will do."""
    from fa_registry.workflows import looking

    shown(looking.show(run_id, store), as_json)


@click.command()
@STORE
@JSON
@examples("doctor", "doctor --store sqlite:///other.db --json")
def doctor(store: str, as_json: bool) -> None:
    """Check versions, device, store and data. Exit 1 if something is not in order."""
    from fa_registry.workflows.looking import examine

    sys.exit(examined(examine(store), as_json))


@click.command()
@STORE
@JSON
@examples("optimize", "optimize --store sqlite:///other.db")
def optimize(store: str, as_json: bool) -> None:
    """Make a large sqlite store quick to look through (ANALYZE); nothing in it changes."""
    from fa_registry.workflows.looking import run_optimize

    optimized(run_optimize(store), as_json)


@click.command()
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("name", default="")
@DATA_ROOT
@JSON
@examples(
    "data list",
    "data where cifar10 --data-root ~/data",
    "data fetch cifar10 --data-root ~/data",
    "data check --data-root ~/data --json",
)
def data(action: str, name: str, data_root: str, as_json: bool) -> None:
    """Data sets and the files they need. Exit 3: a file is missing or not as published.

    \b
    ACTION is one of
      list   every data set, and whether what it needs is here
      where  the exact path and MD5 of every file
      fetch  download the files of NAME by torchvision, and decode them
      check  digests of files and decoded images, and their counts
    The folder is --data-root, else FA_REGISTRY_DATA, else ./data.
    """
    from fa_registry.workflows import data as verb

    root, report = folder(data_root), functools.partial(click.echo, err=True)
    if action == "list":
        overviewed(verb.overview(name, root), as_json)
    elif action == "where":
        placed(verb.places(name, root), as_json)
    else:
        rows = verb.fetch(name, root, report) if action == "fetch" else verb.check(name, root, report)
        sys.exit(checked(rows, as_json))


# What lint prints: text for people, JSON and SARIF for machines.


def run_lint(paths: Sequence[str], as_json: bool = False, as_sarif: bool = False) -> LintReport:
    """What the rules find under the paths; UsageError for a missing path, no Python file, or two output formats at once."""
    if as_json and as_sarif:
        raise UsageError("--json and --sarif are two formats for one output; choose one")
    return lint_paths(paths)


def linted(report: LintReport, as_json: bool, as_sarif: bool) -> int:
    """Prints the report; returns its exit code."""
    if as_json:
        shown = {"files": report.files, "findings": report.findings, "silenced": report.silenced}
        click.echo(jsonio.pretty(shown), nl=False)
    elif as_sarif:
        click.echo(jsonio.pretty(sarif(report, importlib.metadata.version("fa_registry"))), nl=False)
    else:
        for finding in report.findings:
            click.echo(_text(finding))
        click.echo(_summary(report))
    return report.exit_code


def _text(finding: LintFinding) -> str:
    return f"{finding.place.text}: {finding.code} {finding.what}\n    why: {finding.why}\n    fix: {finding.fix}"


def _summary(report: LintReport) -> str:
    counts = Counter(one.code for one in report.findings)
    found = ", ".join(f"{code} ×{count}" for code, count in sorted(counts.items()))
    silenced = f"; {len(report.silenced)} silenced with a reason" if report.silenced else ""
    files = f"{report.files} file{'s' if report.files != 1 else ''}"
    if not report.findings:
        return f"no pitfall in {files}{silenced}"
    return f"{len(report.findings)} finding{'s' if len(report.findings) != 1 else ''} in {files}: {found}{silenced}"


# What list, card, show, doctor and optimize print.


def listed(rows: Sequence[Mapping[str, str]], as_json: bool) -> None:
    if as_json:
        click.echo(jsonio.pretty(rows), nl=False)
    else:
        table(["name", "what", "file"], [[row["name"], row["line"], row["file"]] for row in rows], "")


def carded(card: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(jsonio.pretty(card), nl=False)
        return
    for name, value in card.items():
        if value not in ("", [], {}, None):
            click.echo(f"{name}: {_value(value)}")


def _value(value: Any) -> str:
    """Words in a row, sentences numbered, a table by name, text as it is; what takes several lines begins on its own."""
    if isinstance(value, Mapping):
        lines = [f"{name}: {_option(one)}" for name, one in value.items()]
    elif isinstance(value, str) or not isinstance(value, Sequence):
        lines = str(value).splitlines()
        if len(lines) == 1:
            return lines[0]
    elif not any(" " in str(one) for one in value):
        return ", ".join(map(str, value))
    else:
        lines = [f"{index}. {_item(one)}" for index, one in enumerate(value, start=1)]
    return "".join(f"\n  {line}" for line in lines)


def _item(one: Any) -> str:
    """An entry of a list; of a record its fields that are not empty, in a row."""
    return "  ".join(str(field) for field in one.values() if field) if isinstance(one, Mapping) else str(one)


def _option(option: Any) -> str:
    if not isinstance(option, Mapping):
        return str(option)
    allowed = [f"{word} {_value(option[name])}" for name, word in BOUNDS.items() if option[name] not in (None, [])]
    source = f" [{option['source']}]" if option["source"] else ""
    return f"{option['default']} ({', '.join([option['help'], *allowed])}){source}"


def shown(record: RunRecord, as_json: bool) -> None:
    """One run: its figures by site, its scalars, and where they come from."""
    if as_json:
        click.echo(jsonio.pretty(record), nl=False)
        return
    click.echo(f"{record.name}\nrun {record.run_id} · {record.status} · {record.setting}")
    count = max((len(row) for row in record.measurements.sites.values()), default=0)
    rows = [[name, *(text(reading) for reading in row)] for name, row in record.measurements.sites.items()]
    table(["quantity", *(f"site {site}" for site in range(count))], rows, "by site")
    table(
        ["quantity", "value"],
        [[name, text(reading)] for name, reading in record.measurements.scalars.items()],
        "scalars",
    )
    table(["field", "value"], [[name, str(value)] for name, value in record.provenance.items()], "provenance")


def examined(rows: Sequence[Mapping[str, Any]], as_json: bool) -> int:
    """Prints the checks; returns 1 if one is not in order."""
    if as_json:
        click.echo(jsonio.pretty(rows), nl=False)
    else:
        table(
            ["check", "", "found"],
            [[row["check"], "ok" if row["ok"] else "NOT OK", str(row["found"])] for row in rows],
            "",
        )
    return 0 if all(row["ok"] for row in rows) else 1


def optimized(found: Optimized, as_json: bool) -> None:
    """The store, and the rows of its large tables."""
    if as_json:
        click.echo(jsonio.pretty(found), nl=False)
    else:
        table(
            ["table", "rows"], [[name, f"{count:,}"] for name, count in found.rows.items()], f"analysed {found.store}"
        )


# What data prints.


def overviewed(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    from fa_registry.workflows.data import state

    if as_json:
        click.echo(jsonio.pretty(rows), nl=False)
    else:
        table(["name", "state", "what"], [[row["name"], state(row), row["line"]] for row in rows], "")


def placed(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Paths as plain lines, so that they can be copied whole."""
    if as_json:
        click.echo(jsonio.pretty(rows), nl=False)
        return
    for row in rows:
        md5 = f", MD5 {row['md5']}" if row["md5"] else ""
        click.echo(f"{row['name']}: {row['path']} ({row['kind']}{md5}): {'there' if row['present'] else 'not there'}")
    if not rows:
        click.echo("needs no files")


def checked(rows: Sequence[Mapping[str, Any]], as_json: bool) -> int:
    """Prints the checks; returns the exit code of an integrity error if one is not in order."""
    if as_json:
        click.echo(jsonio.pretty(rows), nl=False)
    elif rows:
        cells = [[row["name"], row["what"], "ok" if row["ok"] else "NOT OK", row["found"]] for row in rows]
        table(["name", "what", "", "found"], cells, "")
    else:
        click.echo(
            "nothing to check: no data set has files here; `fa-registry data where` says where they are expected"
        )
    return 0 if all(row["ok"] for row in rows) else IntegrityError.exit_code


VERBS = (lint, list_, card, show, doctor, optimize, data)
