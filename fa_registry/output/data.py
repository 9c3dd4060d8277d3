"""What the data verb prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from fa_registry import jsonio
from fa_registry.errors import IntegrityError
from fa_registry.output.tables import table


def overviewed(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    from fa_registry.commands.data import state

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
