"""The command `analyse`: answer one question about many runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fa_registry.audits.options import AnalysisOutput, JudgingOptions
from fa_registry.cli.options import JSON, completer, examples, takes
from fa_registry.cli.tables import print_json, print_out
from fa_registry.cli.tables import table as print_table
from fa_registry.evidence.options import RecomputeOptions
from fa_registry.option_table import build
from fa_registry.plugin_registry import Catalog
from fa_registry.studies.options import RunSelector, StoreLocation

if TYPE_CHECKING:
    from fa_registry.analyses import AnalysisCell, AnalysisColumn, AnalysisTable
    from fa_registry.audits.analyse_command import AnalyseResult

OPTIONS = "study run_ids experiment edition thresholds recompute jobs epochs seeds data scale settings device out data_root store"


def _named(function: Callable) -> Callable:
    """Replace `{names}` in the command's help by the names of the built-in analyses."""
    names = ", ".join(name.replace("_", "-") for name in Catalog("analyses", "analysis").builtin_names())
    function.__doc__ = (function.__doc__ or "").format(names=names)  # python -OO removes docstrings
    return function


@click.command(short_help="Answer one question about many judged runs.")
@click.argument("name", metavar="NAME", shell_complete=completer("analyses"))
@takes(RunSelector, JudgingOptions, RecomputeOptions, AnalysisOutput, StoreLocation, only=OPTIONS, argument="analyses")
@JSON
@examples(
    "analyse all --study digits",
    "analyse sensitivity --study digits --edition 2026-12",
    "analyse ablation --study digits --seeds 42 --json",
    "analyse penalty --experiment fa_registry --out penalties",
)
@_named
def analyse(name: str, as_json: bool, **arguments: Any) -> None:
    """Answer one question about many judged runs.

    The command prints a table and writes a JSON file, a CSV file and a figure.

    NAME is {names}, or all. `fa-registry list analyses` prints the question of each analysis.

    Exit 0: all runs are intact, 3: a file or metric of a run differs from what was recorded.
    """
    from fa_registry.audits.analyse_command import run_analyse

    groups = (RunSelector, JudgingOptions, RecomputeOptions, StoreLocation, AnalysisOutput)
    selector, judging, recomputing, location, output = (build(group, arguments) for group in groups)
    result = run_analyse(name, selector, judging, recomputing.measuring, location, output)
    analysed(result, as_json, several=name == "all")
    sys.exit(result.exit_code)


# The output of the command: the result as a table, with a note for the reason of each missing number.


def analysed(result: AnalyseResult, as_json: bool, several: bool) -> None:
    """Print the results of the command.

    The JSON output is a list if the user requested all analyses (`several`).
    """
    from fa_registry.protocol.builtin_editions import describe_edition

    if as_json:
        print_json(result.analyses if several else result.analyses[0])
        return
    for analysis in result.analyses:
        edition = describe_edition(analysis.edition)
        print_out(f"{analysis.title}: {analysis.question}", f"{analysis.selection}, by edition {edition}")
        notes: dict[str, int] = {}
        for table in analysis.tables:
            if not table.detail and table.rows:
                columns, title = _shown(table)
                rows = [[cell_text(row[column.name], column, notes) for column in columns] for row in table.rows]
                print_table([column.name for column in columns], rows, title)
        for reason, number in notes.items():
            print_out(f"  ({number}) {reason}")
        for remark in analysis.remarks:
            print_out(f"note: {remark}")
        print_out("")
    for excluded in result.analyses[0].excluded:
        print_out(f"not analysed: {excluded.name}: {excluded.reason}")
    print_out("written: " + ", ".join(str(path) for path in result.files if path.suffix in (".json", ".png")))


def cell_text(cell: AnalysisCell, column: AnalysisColumn, notes: dict[str, int]) -> str:
    """Return the text of a table cell: a text, or a number with its interval.

    A missing value is printed as `N/A (2)` if note 2 contains the reason; new reasons are added to `notes`.
    """
    if cell.reading is None:
        return cell.text
    if cell.reading.value is None:
        number = notes.setdefault(cell.reading.reason, len(notes) + 1)
        return f"{cell.text or 'N/A'} ({number})"
    value = _number(cell.reading.value, column.kind)
    count = f" ({cell.n} of {cell.of})" if cell.n < cell.of else ""
    if cell.text:
        if not cell.n:
            return f"{cell.text} {value}"
        return f"{cell.text} {value} of {cell.n}" if cell.reading.value else cell.text  # `rejects 2 of 3`, `accepts`
    if cell.interval is None:
        return value + count
    return f"{value} [{', '.join(_number(end, column.kind) for end in cell.interval)}]{count}"


def _number(value: float, kind: str) -> str:
    from fa_registry.reporting.text.filters import KINDS, compact

    formats: Mapping[str, Callable[[float], str]] = {**KINDS, "count": _count, "chosen": compact}
    return formats[kind](value)


def _count(value: float) -> str:
    """Return a count as text, with one decimal if it is not an integer, such as the median 3.5."""
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _shown(table: AnalysisTable) -> tuple[list[AnalysisColumn], str]:
    """Return the columns and the title; a setting that all rows have in common is only in the title."""
    settings = {row["setting"].text for row in table.rows if "setting" in row}
    if len(settings) != 1:
        return list(table.columns), table.title
    return [column for column in table.columns if column.name != "setting"], f"{table.title} · {settings.pop()}"


COMMANDS = (analyse,)
