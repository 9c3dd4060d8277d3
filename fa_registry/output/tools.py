"""What list, card, show, doctor and optimize print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fa_registry import jsonio
from fa_registry.output.tables import table, text

if TYPE_CHECKING:
    from fa_registry.commands.optimize import Optimized
    from fa_registry.records import RunRecord

BOUNDS = {"least": "at least", "above": "more than", "choices": "one of"}  # of an option: words before the bound


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
