"""What every verb prints in one look: tables for people, JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fa_registry import jsonio

if TYPE_CHECKING:
    from fa_registry.records import Reading

SHORT_ID = 8


def print_json(value: Any) -> None:
    """What --json prints, on standard output."""
    click.echo(jsonio.pretty(value), nl=False)


def print_page(address: str) -> None:
    """Where MLflow's pages show the runs side by side, where there are such pages."""
    if address:
        from fa_registry.workflows.stores import UI  # the verb has loaded it by now

        served = " (after `make ui`)" if address.startswith(UI) else ""
        click.echo(f"side by side: {address}{served}")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    """Print one table to standard output: as wide as the terminal, 200 characters where there is none."""
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


def text(reading: Reading) -> str:
    return f"{reading.value:.4g}" if reading.value is not None else "N/A"
