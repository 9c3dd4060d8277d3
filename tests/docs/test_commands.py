"""Every command on a page is one that exists: commands, options, arguments, entry points, make targets and modules."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence

import click
import pytest
import yaml

from fa_registry.cli import main
from tests.docs.pages import PAGES, ROOT, commands, name_of

TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
ENTRIES = yaml.safe_load((ROOT / "MLproject").read_text())["entry_points"]


def refusal(parts: Sequence[str]) -> str:
    """Why the command line would refuse these words; empty where it would not. Whether files exist is not asked."""
    program, *arguments = parts
    if program.rpartition("/")[2] == "fa-registry":
        return _refused_by_click(arguments)
    if parts[:2] == ["mlflow", "run"]:
        return _refused_by_mlproject(arguments)
    if program == "make":
        return "" if set(arguments) <= TARGETS else f"no such target: {arguments}"
    if program.startswith("python") and arguments[:1] == ["-m"]:
        return "" if importlib.util.find_spec(arguments[1]) else f"no such module: {arguments[1]}"
    return ""


def _refused_by_click(arguments: Sequence[str]) -> str:
    if not arguments or arguments[0].isupper() or "[OPTIONS]" in arguments:  # a usage line, and no command
        return ""
    command = main.commands.get(arguments[0])
    if command is None:
        return "" if arguments[0] in ("--help", "--version") else f"no such verb: {arguments[0]}"
    given = [word for word in arguments[1:] if word != "--help"]
    context = click.Context(command, info_name=arguments[0])
    try:
        _, rest, _ = command.make_parser(context).parse_args(given)
    except click.UsageError as error:
        return error.format_message()
    return f"unexpected: {rest}" if rest else ""


def _refused_by_mlproject(arguments: Sequence[str]) -> str:
    entry = arguments[arguments.index("-e") + 1] if "-e" in arguments else "main"
    if entry not in ENTRIES:
        return f"no such entry point: {entry}"
    given = {after.partition("=")[0] for word, after in zip(arguments, arguments[1:], strict=False) if word == "-P"}
    unknown = given - set(ENTRIES[entry].get("parameters", {}))
    return f"no such parameter: {sorted(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_of_a_page_exists(page):
    refused = {" ".join(parts): why for parts in commands(page) if (why := refusal(parts))}
    assert refused == {}


def test_the_pages_have_commands_of_every_kind():
    programs = {parts[0].rpartition("/")[2] for page in PAGES for parts in commands(page)}
    assert {"fa-registry", "mlflow", "make", "python"} <= programs


@pytest.mark.parametrize(
    "parts",
    [
        ["fa-registry", "adit"],
        ["fa-registry", "audit", "--studies", "digits"],
        ["fa-registry", "info", "dfa", "bp"],
        ["fa-registry", "study", "--jobs"],
        ["mlflow", "run", ".", "-e", "trains"],
        ["mlflow", "run", ".", "-P", "studies=digits"],
        ["make", "demos"],
        ["python", "-m", "benchmarks.nothing"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_is_noticed(parts):
    assert refusal(parts)


ADVICE = re.compile(r"`(?:fa-registry )?([a-z-]+) ([^`\n]*--[a-z][^`\n]*)`|`(--[a-z][a-z-]*)[^`\n]*`")
SOURCES = [path for path in (ROOT / "fa_registry").rglob("*.py") if path.parts[-2] != "reference"]


def test_the_program_recommends_only_options_that_exist():
    options = {
        name: {option for each in command.params for option in each.opts} for name, command in main.commands.items()
    }
    wrong = []
    for path in SOURCES:
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))  # a text in several lines of code
        for command, arguments, option in ADVICE.findall(text):
            known = {"--help"} | (options.get(command, set()) if command else set().union(*options.values()))
            named = {option} if option else set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", arguments))
            wrong += [(path.name, sorted(named - known))] if (command in options or option) and named - known else []
    assert not wrong
