"""What promote prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fa_registry import jsonio

if TYPE_CHECKING:
    from fa_registry.commands.promote import Promotion


def promoted(result: Promotion, as_json: bool) -> None:
    """The version, its verdict and its aliases, and how to load it."""
    if as_json:
        click.echo(jsonio.pretty(result), nl=False)
        return
    done = "promoted" if result.promoted else "already promoted with this verdict"
    click.echo(f"{result.reference}: run {result.run_id} {done}, {result.verdict} by edition {result.edition}")
    others = [f"{label} by {name}" for name, label in result.verdicts.items() if name != result.edition]
    if others:
        click.echo(f"  other editions: {', '.join(others)}")
    if result.despite:
        click.echo(f"  despite {result.verdict}: {result.despite}")
    if result.aliases:
        click.echo(f"  aliases: {', '.join(result.aliases)}")
    click.echo(f'load it: fa_registry.load_model("{result.reference}")')
