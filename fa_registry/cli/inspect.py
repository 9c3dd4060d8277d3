"""The commands that show runs, plug-ins and code, or that maintain a store, and their output."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fa_registry.cli.maintenance import STORE, state_text
from fa_registry.cli.options import JSON, check_card, completer, examples, takes
from fa_registry.cli.tables import SHORT_ID, print_json, print_out, print_result, table, text
from fa_registry.errors import IntegrityError, UsageError, pluralise
from fa_registry.inspection.plugin_list import CATALOGS, FAMILIES
from fa_registry.output_streams import has_reader
from fa_registry.studies.options import StoreLocation

if TYPE_CHECKING:
    from fa_registry.audits.recorded_verdicts import RecordedVerdict
    from fa_registry.inspection.inspect_runs import Listing, RunStatus
    from fa_registry.records import RunRecord

BOUNDS = {"least": "at least", "above": "more than", "choices": "one of"}  # kind of a bound → text before the bound
DATA_ROOT = takes(StoreLocation, only="data_root")
STUDY = functools.partial(click.option, "--study", default="", metavar="NAME", shell_complete=completer("studies"))
QUIET = 30.0  # seconds; `watch` shows a heartbeat that is older
KINDS = ("method", "architecture", "dataset", "diagnostic", "study")
ACTIONS = ("list", "where", "fetch", "check")


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@JSON
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0, a format that code hosts and editors read.")
@click.option(
    "--select",
    default="",
    metavar="CODES",
    help="Rules to apply, e.g. `FA002,FA007` [all, or those in pyproject.toml].",
)
@click.option("--ignore", default="", metavar="CODES", help="Rules to ignore [none, or those in pyproject.toml].")
@examples(
    "lint .", "lint train.py analysis.ipynb --json", "lint src --ignore FA003", "lint src --sarif > pitfalls.sarif"
)
def lint(paths: tuple[str, ...], as_json: bool, as_sarif: bool, select: str, ignore: str) -> None:
    """Find violations of the protocol in Python code.

    The code is read but not imported. Exit 0: no finding, 1: findings, 2: there is no file to read.
    """
    if as_json and as_sarif:
        raise UsageError("--json and --sarif select two formats of the same output; pass only one of them")
    try:
        from fa_lint import command, errors, runner
    except ModuleNotFoundError as error:
        raise UsageError(
            "`fa-registry lint` needs the distribution fa_lint, which is not installed; in a checkout of fa_registry, run: "
            "pip install ./packages/fa_lint"
        ) from error
    try:
        report = runner.lint_paths(paths, command.codes_in(select), command.codes_in(ignore))
    except errors.LintError as error:
        raise UsageError(error) from error
    if as_json:
        print_json(command.json_value(report))
    elif as_sarif:
        print_json(runner.sarif(report, importlib.metadata.version("fa_registry"), "fa-registry lint"))
    else:
        print_out(*command.text_lines(report))
    sys.exit(report.exit_code)


@click.command("list", short_help="List the runs of a store, or methods, studies, editions, ….")
@click.argument("family", default="methods", shell_complete=completer((*FAMILIES, "runs")))
@STUDY(help="For runs: list only runs of this study.")
@click.option(
    "--method",
    default="",
    metavar="LABEL",
    help="For runs: list only runs of this method, e.g. `dfa` or `dfa+pen λ=0.01`.",
    shell_complete=completer("methods"),
)
@click.option(
    "--status", default="", help="For runs: complete, diverged, stopped_early, interrupted, failed or running."
)
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000),
    default=None,
    metavar="N",
    help="For runs: list the newest N runs; 0: all runs [50].",
)
@click.option(
    "--store", default=None, metavar="URI", help="For runs: MLflow tracking URI of the store [MLFLOW_TRACKING_URI, …]."
)
@JSON
@examples("list methods", "list studies --json", "list runs", "list runs --study digits --method dfa --limit 10")
def list_(family: str, as_json: bool, **arguments: Any) -> None:
    """List plug-ins, editions, studies or templates, or the runs of a store.

    FAMILY is methods, architectures, datasets, diagnostics, tasks, analyses, editions, studies, templates or runs.
    """
    options = {name: value for name, value in arguments.items() if value not in ("", None)}
    if family == "runs":
        from fa_registry.inspection.inspect_runs import listed_runs

        runs_listed(listed_runs(**options), as_json)
        return
    if options:
        raise UsageError(f"--{', --'.join(options)}: these options select runs; use `fa-registry list runs`")
    from fa_registry.inspection.plugin_list import members

    rows = members(family)
    if as_json:
        print_json(rows)
    else:
        table(["name", "what", "file"], [[row["name"], row["line"], row["file"]] for row in rows], "")


def runs_listed(listing: Listing, as_json: bool) -> None:
    """Print one line per run, with an empty cell for each missing value."""
    if as_json:
        print_json(listing.runs)
    elif listing.runs:
        varied = _varied(listing.runs)
        column = _headline_column(run["headline"] for run in listing.runs)
        rows = [_run_row(run, varied, column) for run in listing.runs]
        studies = {row["study"] for row in rows}
        shared = studies.pop() if len(studies) == 1 else ""  # a study that all rows share is shown above the rows
        columns = [name for name in rows[0] if name != "study" or studies]
        table(columns, [[row[name] for name in columns] for row in rows], shared and f"study {shared}")
    else:
        print_out(listing.none)
    if listing.more:
        print_out(
            f"the list ends after the newest {pluralise(len(listing.runs), 'run')}; --limit N lists more runs, --limit 0 lists all",
            err=True,
        )


def _varied(runs: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the pairs (method, option) for which the runs have several values."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for option, value in run["options"].items():
            values.setdefault((run["method"], option), set()).add(value)
    return {key for key, option_values in values.items() if len(option_values) > 1}


def _headline_column(names: Iterable[str]) -> str:
    """Return the heading of a column of main metrics, for example `accuracy`."""
    from fa_registry.metrics import DEFAULT, metric_named  # imports numpy, which --help does not need

    return " or ".join(metric_named(name).symbol for name in dict.fromkeys(names) or (DEFAULT.name,))


def _run_row(run: Mapping[str, Any], varied: set[tuple[str, str]], column: str) -> dict[str, str]:
    seed = run["seed"]
    options = [f"{option}={value}" for option, value in run["options"].items() if (run["method"], option) in varied]
    return {
        "run": run["run_id"][:SHORT_ID],
        "study": run["study"],
        "method": f"{run['method']} ({', '.join(options)})" if options else run["method"],
        "seed": "" if seed is None else str(seed),
        "status": run["status"].replace("_", " "),
        "verdict": run["verdict"],
        "proof": run["proof"],
        column: "" if run["value"] is None else f"{run['value']:.3f}",
        "age": _age(datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(run["started"])),
    }


def _age(age: datetime.timedelta) -> str:
    """Return an age as text, e.g. `45s`, `12m`, `3h` or `20d`."""
    seconds = max(0, int(age.total_seconds()))
    for size, unit, limit in ((1, "s", 90), (60, "m", 90), (3600, "h", 48)):
        if seconds < size * limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


@click.command(short_help="Show the card of a method, a data set or another plug-in.")
@click.argument("name", shell_complete=completer("methods"))
@click.option(
    "--family",
    default="",
    help="Plug-in kind of NAME [all kinds are searched, methods first].",
    shell_complete=completer(CATALOGS),
)
@JSON
@examples("info dfa", "info gamma --family diagnostics --json")
def info(name: str, family: str, as_json: bool) -> None:
    """Show the card of a method, architecture, data set, diagnostic or task: equations, options, source."""
    check_card(name, family)
    from fa_registry.inspection.plugin_list import card_of

    card = card_of(name, family)
    if as_json:
        print_json(card)
        return
    for field, value in card.items():
        if value not in ("", [], {}, None):
            print_out(*f"{field}: {_value(value)}".split("\n"))


def _value(value: Any) -> str:
    """Return a value as text: a list of words is one line, any other list or mapping is several lines."""
    if isinstance(value, Mapping):
        lines = [f"{name}: {_option(option)}" for name, option in value.items()]
    elif isinstance(value, str) or not isinstance(value, Sequence):
        lines = str(value).splitlines()
        if len(lines) == 1:
            return lines[0]
    elif not any(" " in str(item) for item in value):
        return ", ".join(map(str, value))
    else:
        fields = (
            [field for field in item.values() if field] if isinstance(item, Mapping) else [item] for item in value
        )
        lines = [f"{index}. {'  '.join(map(str, listed))}" for index, listed in enumerate(fields, start=1)]
    return "".join(f"\n  {line}" for line in lines)


def _option(option: Any) -> str:
    if not isinstance(option, Mapping):
        return str(option)
    bounds = [f"{word} {_value(option[name])}" for name, word in BOUNDS.items() if option[name] not in (None, [])]
    bounds += ["or a whole number of at least 1"] * option["or_count"]
    source = f" [{option['source']}]" if option["source"] else ""
    return f"{option['default']} ({', '.join([option['help'], *bounds])}){source}"


@click.command()
@click.argument("run_id")
@STORE
@JSON
@examples("show 4f1c0a2b", "show 4f1c0a2b --json")
def show(run_id: str, store: str, as_json: bool) -> None:
    """Show specification, metrics and provenance of one run.

    The metrics are shown for each site. RUN_ID is a run id, or the first characters of a run id.
    """
    from fa_registry import jsonio
    from fa_registry.inspection import inspect_runs

    record, verdict, form = inspect_runs.shown_run(run_id, store)
    if as_json:
        print_json({**jsonio.encode(record), "form": form})
        return
    from fa_registry.metrics import NOT_SHOWN  # imports numpy, which --help does not need

    measured = record.measurements
    sites, scalars = (
        {name: found for name, found in values.items() if name not in NOT_SHOWN}
        for values in (measured.sites, measured.scalars)
    )
    table(["field", "value"], [[name, str(value)] for name, value in record.provenance.items()], "provenance")
    count = max((len(row) for row in sites.values()), default=0)
    rows = [[name, *map(text, row)] for name, row in sites.items()]
    table(["metric", *(f"site {site}" for site in range(count))], rows, "by site")
    table(["metric", "value"], [[name, text(reading)] for name, reading in scalars.items()], "scalars")
    print_out(f"run {record.run_id} · {record.name} · {record.status}", *_run_answer(record, verdict))
    if form:
        from fa_registry.tracking.store import resolve_uri
        from fa_registry.tracking.stores import served

        print_out(f"form: {served(resolve_uri(store), form)}")


def _run_answer(record: RunRecord, verdict: RecordedVerdict) -> Iterator[str]:
    """Yield a line with the main metrics of a run, and a line with its verdict."""
    from fa_registry.metrics import HEADLINE_GAMMA, headline_of, metric_named, metrics_of_headlines, value_in

    measured = record.measurements
    names = [headline_of(measured).name, "growth_max", "g_norm_mean_ce_L", HEADLINE_GAMMA]
    shown = {name: reading for name in names if (reading := value_in(measured, name))}
    known = metrics_of_headlines([record])
    yield " · ".join(f"{metric_named(name, known).label} {text(reading)}" for name, reading in shown.items())
    not_judged = f"not judged yet: `fa-registry audit --run {record.run_id}` judges the run"
    yield f"verdict: {verdict}" if verdict.label else not_judged


class Action(click.Choice):
    """Parameter type: one of ACTIONS.

    If the user types the name of a data set instead of an action, the error contains the right command.
    """

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the action, or raise a usage error."""
        from fa_registry import datasets

        if value not in ACTIONS and value in datasets.CATALOG.names():
            advice = f"give an action first, e.g. `fa-registry data check {value}` (or list, where, fetch)"
            self.fail(f"{value!r} is a data set; {advice}", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@click.argument("action", type=Action(ACTIONS))
@click.argument("name", default="", shell_complete=completer("datasets"))
@DATA_ROOT
@JSON
@examples(
    "data list",
    "data check fashion_mnist",
    "data where cifar10 --data-root ~/data",
    "data fetch cifar10 --data-root ~/data",
    "data check --data-root ~/data --json",
)
def data(action: str, name: str, data_root: str, as_json: bool) -> None:
    """List, locate, download or check data sets and their files.

    \b
    ACTION is one of
      list   list all data sets, and whether the files of each are available
      where  print the path and MD5 of every file
      fetch  download the files of NAME with torchvision, and decode them
      check  compute digests of files and decoded images, and count the images

    The folder is --data-root, or else FA_REGISTRY_DATA, or else ./data. fashion_mnist is also found in the folder of Debian's
    package dataset-fashion-mnist.

    Exit 0: all files are correct, 3: a file is missing or differs from the published file.
    """
    from fa_registry.studies import data_files as command

    root, report = Path(data_root) if data_root else None, functools.partial(print_out, err=True)
    if action in ("list", "where"):
        rows = command.overview(name, root) if action == "list" else command.places(name, root)
    else:
        rows = command.fetch(name, root, report) if action == "fetch" else command.check(name, root, report)
    if as_json:
        print_json(rows)
    elif action == "list":
        table(["name", "state", "what"], [[row["name"], command.state(row), row["line"]] for row in rows], "")
    elif action == "where":
        _placed(rows)
    elif rows:
        cells = [[row["name"], row["what"], state_text(row), row["found"]] for row in rows]
        table(["name", "what", "", "found"], cells, "")
    else:
        print_out("nothing to check: no data set has files here; `fa-registry data where` prints the expected paths")
    sys.exit(0 if all(row.get("ok", True) for row in rows) else IntegrityError.exit_code)


def _placed(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print each path on a line, not in a table, so that the user can copy the path."""
    for row in rows:
        md5 = f", MD5 {row['md5']}" if row["md5"] else ""
        print_out(f"{row['name']}: {row['path']} ({row['kind']}{md5}): {'present' if row['present'] else 'missing'}")
    if not rows:
        print_out("needs no files")


@click.command(short_help="Create the files of a new plug-in or study.")
@click.argument("kind", metavar="KIND", shell_complete=completer(KINDS))
@click.argument("name")
@click.option("--out", default="", metavar="FOLDER", help="Parent folder of the new folder [the current folder].")
@JSON
@examples("new method my_rule", "new study my_study", "new diagnostic my_figure --out packages")
def new(kind: str, name: str, out: str, as_json: bool) -> None:
    """Create a plug-in package with entry point and test, or a study.toml.

    KIND is method, architecture, dataset, diagnostic or study. Existing files are never overwritten.
    """
    from fa_registry.studies import scaffold

    skeleton = scaffold.new(kind, name, out)
    fields = {"folder": str(skeleton.folder), "files": list(map(str, skeleton.files)), "commands": skeleton.commands}
    lines = [*(f"{path}: written" for path in skeleton.files), "next:"]
    print_result(fields, as_json, *lines, *(f"  {command}" for command in skeleton.commands))


@click.command(short_help="Watch the runs of a store, or of one study, while they train.")
@STUDY(help="Show only runs of this study.")
@click.option(
    "--every",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.5, 3600),
    metavar="SECONDS",
    help="Seconds between two refreshes.",
)
@click.option("--once", is_flag=True, help="Refresh once and exit, for scripts.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Show the newest N runs.",
)
@STORE
@JSON
@examples(
    "watch", "watch --study digits", "watch --study digits --once --json", "watch --store http://server:5000 --every 30"
)
def watch(study: str, every: float, once: bool, limit: int, store: str, as_json: bool) -> None:
    """Show the state of runs until all runs have ended.

    The table contains epoch, norms, accuracy, fired rules, speed and remaining time. Each refresh sends one query, and reads
    only MLflow's tables and no artifacts. If standard output is not a terminal, a table is printed only after a change.

    The exit code is 0, even if runs fail.
    """
    from fa_registry.inspection.inspect_runs import is_anybody_at_work, watcher

    poller = watcher(store, study, limit)
    previous_cells = None
    while True:
        rows = poller.poll()
        if as_json:
            print_json(rows)
        elif (cells := [_watched_cells(row) for row in rows]) != previous_cells:
            if sys.stdout.isatty() and not once:
                click.clear()
            _print_watched(cells, rows, study)
            previous_cells = cells
        if once or not is_anybody_at_work(rows) or not has_reader(sys.stdout):
            return
        time.sleep(every)


def _print_watched(cells: Sequence[Sequence[str]], rows: Sequence[RunStatus], study: str) -> None:
    if not rows:
        print_out("no run yet" + (f" of study {study}" if study else ""))
        return
    from fa_registry.metrics import metric_named  # imports numpy, which --help does not need

    counts = Counter(row.status for row in rows)
    statement = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items())
    norms = [metric_named(name).symbol for name in ("h_L", "g_norm_mean_ce_L")]
    headline = _headline_column(row.headline for row in rows)
    columns = ["run", "name", "status", "epoch", *norms, headline, "fired", "epochs/s", "left"]
    table(columns, cells, f"study {study}: {statement}" if study else statement)


def _watched_cells(row: RunStatus) -> list[str]:
    from fa_registry.studies.progress import duration

    silent_text = f", no heartbeat for {row.silent:.0f} s" if row.silent > QUIET else ""
    return [
        row.run_id[:SHORT_ID],
        row.name,
        row.status.replace("_", " ") + silent_text,
        "" if row.epoch is None else f"{row.epoch} of {'?' if row.epochs is None else row.epochs}",
        *("" if value is None else f"{value:.4g}" for value in (row.h_L, row.g_L)),
        "" if row.value is None else f"{row.value:.3f}",
        ", ".join(f"{rule} at {epoch}" for rule, epoch in row.fired.items()),
        "" if row.rate is None else f"{row.rate:.3g}",
        "" if row.left is None else duration(row.left),
    ]


COMMANDS = (lint, list_, watch, info, show, data, new)
