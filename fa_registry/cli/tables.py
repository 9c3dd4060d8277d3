"""Output of all commands: lines and tables for people, JSON for programs.

Names are untrusted text. Control characters and line breaks in names are escaped, see text_safety.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from fa_registry import jsonio
from fa_registry.output_streams import encodable
from fa_registry.text_safety import ascii_json, escape_message, escape_to_one_line, json_text, json_without_password

if TYPE_CHECKING:
    from rich.table import Table

    from fa_registry.records import Reading

SHORT_ID = 8
TerminalCell = str | tuple[str, ...]  # one line, or several lines
UNKNOWN_WIDTH = 200  # characters; the width of a table that is not printed on a terminal
NO_BREAK = "\u00a0"  # a space at which `table` does not wrap


def print_out(*lines: str, err: bool = False) -> None:
    """Print lines on standard output, or on standard error if `err` is true.

    Line breaks inside a line are escaped.
    """
    click.echo("\n".join(map(escape_to_one_line, lines)), err=err)


def print_err(description: str) -> None:
    """Print an error or a log message on standard error; the message may have several lines."""
    # progress bars replace sys.stderr while they are shown
    print(escape_message(description), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output, with passwords removed from store addresses."""
    output = json_without_password(json_text(jsonio.pretty(value)))
    is_complete = encodable(output, sys.stdout) == output
    click.echo(output if is_complete else ascii_json(output), nl=False)


def print_result(value: Any, as_json: bool, *lines: str) -> None:
    """Print a result as JSON or as lines."""
    if as_json:
        print_json(value)
    else:
        print_out(*lines)


def print_page(address: str, store: str) -> None:
    """Print the address of the MLflow page that compares the runs of a store, if the address is not empty."""
    from fa_registry.tracking.stores import page_lines  # the command has already imported this module

    for line in page_lines(address, store):
        print_out(line)


def table(header: Sequence[TerminalCell], rows: Sequence[Sequence[TerminalCell]], title: str | Sequence[str]) -> None:
    """Print a table on standard output, fitted to the width of the terminal.

    If standard output is not a terminal, the width is the value of the environment variable COLUMNS, or else UNKNOWN_WIDTH. If
    the table is too wide, first the frame is omitted, then cells are wrapped between words. If even the longest words do not
    fit, each row is printed as a list of its cells.
    """
    from rich.console import Console

    console = Console(highlight=False)
    is_width_known = console.is_terminal or os.environ.get("COLUMNS")
    console.width = (console.width if is_width_known else 0) or UNKNOWN_WIDTH
    header, rows = _shown(header), [_shown(row) for row in rows]
    columns = list(zip(header, *rows, strict=True))
    # a number and its unit count as one word
    longest = [max(len(word) for cell in column for word in re.split("[ \n]+", cell)) for column in columns]
    lines = [max(word, *map(_longest_line, column[1:]), 0) for word, column in zip(longest, columns, strict=True)]
    if title:
        print_out(*([title] if isinstance(title, str) else title))
    for narrowest, (frame, border_width) in product(
        (lines, longest), ((True, 3 * len(header) + 1), (False, 2 * len(header) - 2))
    ):
        if sum(narrowest) + border_width <= console.width:
            widths = _widths(columns, narrowest, console.width - border_width)
            console.print(_drawn(header, rows, widths, frame))
            return
    for row in rows:
        click.echo("\n".join(_stacked(header, row, console.width)))


def _shown(cells: Sequence[TerminalCell]) -> list[str]:
    return ["\n".join(map(escape_to_one_line, [cell] if isinstance(cell, str) else cell)) for cell in cells]


def _longest_line(cell: str) -> int:
    return max(map(len, cell.split("\n")))


def _widths(columns: Sequence[Sequence[str]], narrowest: Sequence[int], available: int) -> list[int]:
    """Return the widths of the columns, with the widest columns reduced until all fit into `available`."""
    widths = [min(available, max(map(_longest_line, column))) for column in columns]
    while sum(widths) > available:
        reducible = (index for index in range(len(widths)) if widths[index] > narrowest[index])
        widths[max(reducible, key=widths.__getitem__)] -= 1
    return widths


def _drawn(header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], frame: bool) -> Table:
    from rich.box import HEAVY_HEAD
    from rich.table import Table
    from rich.text import Text

    padding = (0, 1) if frame else (0, 2, 0, 0)
    rich_table = Table(box=HEAVY_HEAD if frame else None, padding=padding, pad_edge=frame)
    for name, width in zip(header, widths, strict=True):
        rich_table.add_column(Text(_wrapped(name, width)), width=width, no_wrap=True)
    for row in rows:  # Text: untrusted names may contain markup
        rich_table.add_row(*(Text(_wrapped(cell, width)) for cell, width in zip(row, widths, strict=True)))
    return rich_table


def _stacked(header: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    yield _wrapped(row[0], width)
    for name, cell in zip(header[1:], row[1:], strict=True):
        lines = _wrapped(f"{name}: {cell}" if name else cell, width - 2)
        yield textwrap.indent(lines, "  ")


def _wrapped(cell: str, width: int) -> str:
    wrap = partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    lines = (part for line in cell.split("\n") for part in wrap(line) or [""])
    return "\n".join(lines).replace(NO_BREAK, " ")  # an ordinary space, so that a search in the output finds the text


def text(reading: Reading) -> str:
    return f"{reading.value:.4g}" if reading.value is not None else "N/A"
