"""Generator of docs/reference-cli.md and of the table of option names in docs/python-api.md."""

from __future__ import annotations

from collections.abc import Iterator

import click

from fa_registry.cli import main
from fa_registry.option_table import merged
from fa_registry.reference import filled
from fa_registry.workflows import api

INTRODUCTION = """# Reference: command line

Generated from the code by `python -m fa_registry.reference --write`; do not edit. `fa-registry COMMAND --help` prints the same
text.

{help}

| command | purpose |
|---|---|
"""
PROGRAM = "fa-registry"


def commands_reference() -> str:
    """Return the text of docs/reference-cli.md."""
    context = click.Context(main, info_name=PROGRAM)
    commands = sorted(main.commands.items())
    listed = [f"| [`{name}`](#{PROGRAM}-{name}) | {_cell(_paragraphs(command)[0])} |\n" for name, command in commands]
    parts = [INTRODUCTION.replace("{help}", main.help or ""), *listed]
    parts += [
        _command(name, subcommand, click.Context(subcommand, context, info_name=name)) for name, subcommand in commands
    ]
    return "".join(parts).rstrip("\n") + "\n"


def python_reference() -> str:
    """Return docs/python-api.md with the table of options that have another name in Python."""
    functions = filter(callable, vars(api).values())
    options = merged(*(function.options for function in functions if hasattr(function, "options")))
    rows = [(each.flag.partition("/")[0], each.name) for each in options if not each.hidden]
    differing = sorted(f"| `{flag}` | `{name}` |" for flag, name in rows if flag[2:].replace("-", "_") != name)
    return filled("docs/python-api.md", "\n".join(["| option | in Python |", "|---|---|", *differing]))


def _command(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join([f"{PROGRAM} {context.info_name}", *command.collect_usage_pieces(context)])
    lines = [f"\n## {PROGRAM} {name}\n", f"    {usage}", *_help(command), ""]
    options = [record for parameter in command.params if (record := parameter.get_help_record(context)) and record[1]]
    lines += ["| option | |", "|---|---|", *(f"| `{_cell(flags)}` | {_cell(text)} |" for flags, text in options)]
    return "\n".join(lines) + "\n"


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


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
