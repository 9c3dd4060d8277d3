"""What every verb prints in one look: lines and tables for people, JSON for machines. Nothing reaches a terminal but through here.

Names are foreign text: what they hold that is not seen is written out, and none of them begins a line (see visible).
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
from fa_registry.text_safety import escape_message, escape_to_one_line, json_text, json_without_password

if TYPE_CHECKING:
    from rich.table import Table

    from fa_registry.records import Reading

SHORT_ID = 8
TerminalCell = str | tuple[str, ...]  # one line, or several
UNKNOWN_WIDTH = 200  # characters of a table in a file
NO_BREAK = "\u00a0"  # a space within what is one word to `table`


def print_out(*lines: str, err: bool = False) -> None:
    """Print lines: each stays one, whatever names are in it. err: on standard error."""
    click.echo("\n".join(map(escape_to_one_line, lines)), err=err)


def print_err(description: str) -> None:
    """Print an error or a message of the log, which may have several lines, on standard error as it is now."""
    # progress bars take the place of sys.stderr while they are shown
    print(escape_message(description), file=sys.stderr)


def print_json(value: Any) -> None:
    """What --json prints, on standard output. It goes into logs as any line does, and so holds no password of a store either."""
    click.echo(json_without_password(json_text(jsonio.pretty(value))), nl=False)


def print_page(address: str) -> None:
    """Where MLflow's pages show the runs side by side, where there are such pages."""
    if address:
        from fa_registry.workflows.stores import UI  # the verb has loaded it by now

        served = " (after `make ui`)" if address.startswith(UI) else ""
        print_out(f"side by side: {address}{served}")


def table(header: Sequence[TerminalCell], rows: Sequence[Sequence[TerminalCell]], title: str | Sequence[str]) -> None:
    """Print one table to standard output: as wide as the terminal, or as COLUMNS says; UNKNOWN_WIDTH where neither says any.

    Where the cells have no room on one line each, the frame goes, then cells are wrapped. No word is cut: where even the
    longest words do not fit side by side, the rows stand one below the other.
    """
    from rich.console import Console

    console = Console(highlight=False)
    known = console.is_terminal or os.environ.get("COLUMNS")
    console.width = (console.width if known else 0) or UNKNOWN_WIDTH
    header, rows = _shown(header), [_shown(row) for row in rows]
    columns = list(zip(header, *rows, strict=True))
    description = [max(map(_longest_word, column)) for column in columns]
    lines = [max(word, *map(_longest_line, column[1:]), 0) for word, column in zip(description, columns, strict=True)]
    if title:
        print_out(*([title] if isinstance(title, str) else title))
    for narrowest, (frame, between) in product(
        (lines, description), ((True, 3 * len(header) + 1), (False, 2 * len(header) - 2))
    ):
        if sum(narrowest) + between <= console.width:
            widths = _widths(columns, narrowest, console.width - between)
            console.print(_drawn(header, rows, widths, frame))
            return
    for row in rows:
        click.echo("\n".join(_stacked(header, row, console.width)))


def _shown(cells: Sequence[TerminalCell]) -> list[str]:
    """What stands in the cells, a line end only where a cell has several lines."""
    return ["\n".join(map(escape_to_one_line, [cell] if isinstance(cell, str) else cell)) for cell in cells]


def _longest_word(cell: str) -> int:
    """A number and its unit are one word: what stands between them is no ordinary space."""
    return max(map(len, re.split("[ \n]+", cell)))


def _longest_line(cell: str) -> int:
    return max(map(len, cell.split("\n")))


def _widths(columns: Sequence[Sequence[str]], narrowest: Sequence[int], room: int) -> list[int]:
    """As wide as the cells, the widest columns first cut down to what there is room for."""
    widths = [min(room, max(map(_longest_line, column))) for column in columns]
    while sum(widths) > room:
        widest = max(
            (place for place in range(len(widths)) if widths[place] > narrowest[place]), key=widths.__getitem__
        )
        widths[widest] -= 1
    return widths


def _drawn(header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], frame: bool) -> Table:
    from rich.box import HEAVY_HEAD
    from rich.table import Table
    from rich.text import Text

    padding = (0, 1) if frame else (0, 2, 0, 0)
    drawn = Table(box=HEAVY_HEAD if frame else None, padding=padding, pad_edge=frame)
    for name, width in zip(header, widths, strict=True):
        drawn.add_column(Text(_wrapped(name, width)), width=width, no_wrap=True)
    for row in rows:  # Text: names come from outside and may hold markup
        drawn.add_row(*(Text(_wrapped(cell, width)) for cell, width in zip(row, widths, strict=True)))
    return drawn


def _stacked(header: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    yield _wrapped(row[0], width)
    for name, cell in zip(header[1:], row[1:], strict=True):
        lines = _wrapped(f"{name}: {cell}" if name else cell, width - 2)
        yield textwrap.indent(lines, "  ")


def _wrapped(cell: str, width: int) -> str:
    whole = partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    lines = (part for line in cell.split("\n") for part in whole(line) or [""])
    return "\n".join(lines).replace(NO_BREAK, " ")  # which whoever searches the output would not find


def text(reading: Reading) -> str:
    return f"{reading.value:.4g}" if reading.value is not None else "N/A"
