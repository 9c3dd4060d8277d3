"""Check or update the generated parts of docs/ and README."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import click

from fa_registry import api, jsonio, methods
from fa_registry.cli import main as command_line
from fa_registry.inspection.plugin_list import all_cards
from fa_registry.option_table import merged
from fa_registry.protocol.rules import Edition, shipped_editions
from fa_registry.reference import CHECKOUT, filled, table
from fa_registry.reference.architecture import architecture_reference
from fa_registry.reference.files import files_reference
from fa_registry.reference.schemas import audit_files_reference, audit_schema, diff_schema
from fa_registry.reference.templates import templates_reference
from fa_registry.studies.editions import DEFAULT_EDITION

WIDTH = 132


def readme_reference() -> str:
    """Return README.md with the current list of methods and table of editions."""
    listed = textwrap.fill(", ".join(f"`{name}`" for name in methods.CATALOG.names()) + ".", WIDTH)
    editions = table(("edition", "title", "source of the rules"), map(_row, shipped_editions()))
    return filled("README.md", listed, editions)


def recorded_cards() -> str:
    """Return fa_registry/cards.json with the current cards of the built-in plug-ins."""
    return json.dumps(all_cards(), indent=1, ensure_ascii=False) + "\n"


PROGRAM = "fa-registry"


def commands_reference() -> str:
    """Return the text of docs/reference-cli.md."""
    context = click.Context(command_line, info_name=PROGRAM)
    commands = sorted(command_line.commands.items())
    listed = ((f"[`{name}`](#{PROGRAM}-{name})", _paragraphs(command)[0]) for name, command in commands)
    sections = (_command(name, command, click.Context(command, context, info_name=name)) for name, command in commands)
    return filled("docs/reference-cli.md", "\n".join([table(("command", "purpose"), listed), *sections]))


def python_reference() -> str:
    """Return docs/python-api.md with the table of options that have another name in Python."""
    functions = filter(callable, vars(api).values())
    options = merged(*(function.options for function in functions if hasattr(function, "options")))
    rows = [(each.flag.partition("/")[0], each.name) for each in options]
    differing = sorted((f"`{flag}`", f"`{name}`") for flag, name in rows if flag[2:].replace("-", "_") != name)
    return filled("docs/python-api.md", table(("option", "in Python"), differing))


def _command(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join([f"{PROGRAM} {context.info_name}", *command.collect_usage_pieces(context)])
    lines = [f"\n## {PROGRAM} {name}\n", f"    {usage}", *_help(command), ""]
    options = [record for parameter in command.params if (record := parameter.get_help_record(context)) and record[1]]
    return "\n".join([*lines, table(("option", ""), ((f"`{flags}`", text) for flags, text in options))])


def _help(command: click.Command) -> Iterator[str]:
    r"""Yield the paragraphs of a command's help; a paragraph after \b is a code block."""
    for paragraph in _paragraphs(command):
        stripped = paragraph.removeprefix("\b\n")
        head, _, body = stripped.partition("\n")
        if stripped == paragraph:
            yield f"\n{' '.join(paragraph.split())}"
        else:
            yield f"\n{head}\n"
            yield "\n".join(f"    {line.strip()}" for line in body.splitlines())


def _paragraphs(command: click.Command) -> list[str]:
    return [paragraph for paragraph in (command.help or "").split("\n\n") if paragraph.strip()]


def _row(edition: Edition) -> tuple[str, str, str]:
    default = ", the default" if edition.name == DEFAULT_EDITION else ""
    return f"`{edition.name}`{default}", edition.title, edition.source


PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "README.md": readme_reference,
        "fa_registry/cards.json": recorded_cards,
        "docs/architecture.md": architecture_reference,
        "docs/audit-json.md": audit_files_reference,
        "docs/audit.schema.json": lambda: jsonio.pretty(audit_schema()),
        "docs/diff.schema.json": lambda: jsonio.pretty(diff_schema()),
        "docs/python-api.md": python_reference,
        "docs/reference-cli.md": commands_reference,
        "docs/reference-files.md": files_reference,
        "docs/reference-templates.md": templates_reference,
    }
)


def stale(folder: Path = CHECKOUT) -> list[str]:
    """Return the names of the pages that are missing or do not match the code."""
    paths = {name: folder / name for name in PAGES}
    return [
        name for name, path in paths.items() if not path.is_file() or path.read_text(encoding="utf-8") != PAGES[name]()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the names of stale pages, or with `--write` update them. Return 1 if a page remains stale."""
    parser = argparse.ArgumentParser(prog="python -m fa_registry.reference", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages instead of only listing the stale pages")
    parser.add_argument(
        "--folder", type=Path, default=CHECKOUT, help="the repository to check [the repository of this module]"
    )
    options = parser.parse_args(arguments)
    stale_pages = stale(options.folder)
    for name in stale_pages:
        if options.write:
            (options.folder / name).parent.mkdir(exist_ok=True)
            (options.folder / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"{name}: {'written' if options.write else 'is stale; update it with --write'}")
    return int(bool(stale_pages) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
