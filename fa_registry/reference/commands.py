"""docs/reference-cli.md: every verb of the command line with its usage, its arguments, its options and examples."""

from __future__ import annotations

from collections.abc import Iterator

import click

from fa_registry.cli import main

INTRODUCTION = """# Reference: command line

Generated from the code by `python -m fa_registry.reference --write`; do not edit. `fa-registry VERB --help` says the same.

{help}

| verb | what it does |
|---|---|
"""
PROGRAM = "fa-registry"


def commands_reference() -> str:
    """The whole page."""
    context = click.Context(main, info_name=PROGRAM)
    verbs = sorted(main.commands.items())
    listed = [f"| [`{name}`](#{PROGRAM}-{name}) | {_cell(_paragraphs(verb)[0])} |\n" for name, verb in verbs]
    parts = [INTRODUCTION.replace("{help}", main.help or ""), *listed]
    parts += [_verb(name, verb, click.Context(verb, context, info_name=name)) for name, verb in verbs]
    return "".join(parts).rstrip("\n") + "\n"


def _verb(name: str, verb: click.Command, context: click.Context) -> str:
    lines = [f"\n## {PROGRAM} {name}\n", f"    {_usage(verb, context)}", *_help(verb), ""]
    options = [record for parameter in verb.params if (record := parameter.get_help_record(context)) and record[1]]
    lines += ["| option | |", "|---|---|", *(f"| `{_cell(flags)}` | {_cell(words)} |" for flags, words in options)]
    return "\n".join(lines) + "\n"


def _usage(verb: click.Command, context: click.Context) -> str:
    return " ".join([f"{PROGRAM} {context.info_name}", *verb.collect_usage_pieces(context)])


def _help(verb: click.Command) -> Iterator[str]:
    """Paragraphs as they are; a block that click is told not to wrap (\\b) as code."""
    for paragraph in _paragraphs(verb):
        kept = paragraph.removeprefix("\b\n")
        head, _, rest = kept.partition("\n")
        if kept == paragraph:
            yield f"\n{' '.join(paragraph.split())}"
        else:
            yield f"\n{head}\n"
            yield "\n".join(f"    {line.strip()}" for line in rest.splitlines())


def _paragraphs(verb: click.Command) -> list[str]:
    return [paragraph for paragraph in (verb.help or "").split("\n\n") if paragraph.strip()]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
