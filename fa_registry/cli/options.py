"""Click options from the table of options, and the decorator `examples` for their help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import click

from fa_registry.cli.name_check import check_names
from fa_registry.cli.shell_completion import completer
from fa_registry.option_table import MISSING, OptionDeclaration, merged, options_of

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


def takes(
    *sources: Callable | type, only: str = "", without: str = "", argument: str = ""
) -> Callable[[Callable], Callable]:
    """Return a decorator that adds options to a command.

    Args:
        sources: functions of `workflows.api` or option groups, which declare the options.
        only: names of the options to add. By default, all options are added.
        without: names of options that are not added, because they exist only in Python.
        argument: kind of the names in the argument `name` or `names`, see `check_names`.
    """
    options = merged(*(getattr(source, "options", None) or options_of(source, only) for source in sources))

    def with_options(command: Callable) -> Callable:
        """Add the options, and check the typed names before the command runs."""

        @functools.wraps(command)
        def checked(**values: Any) -> Any:
            check_names(click.get_current_context().info_name or "", options, values, argument)
            return command(**values)

        for each in reversed(options):  # the decorator that is applied last gives the first option of the help
            checked = checked if each.name in without.split() else _click_option(each)(checked)
        return checked

    return with_options


def _click_option(option: OptionDeclaration) -> Callable[[Callable], Callable]:
    properties = {"help": option.help, "metavar": option.metavar, "hidden": option.hidden, "default": option.default}
    properties |= {"show_default": option.shows_default, "shell_complete": completer(option.completes, option.is_list)}
    if option.bounds:
        properties["type"] = click.IntRange(*option.bounds)
    elif isinstance(option.default, bool):
        properties["is_flag"] = True
    elif option.default is MISSING:
        del properties["default"]
        properties["required"] = True
    elif option.pairs or option.repeats:
        properties |= {"multiple": True, "default": ()}
    else:
        properties["default"] = "" if option.default == () else str(option.default)
    if option.pairs:
        properties["callback"] = lambda context, parameter, texts: option.pairs(texts)
    return click.option(option.flag, option.name, **properties)


def examples(*lines: str) -> Callable:
    """Return a decorator that appends examples, without the leading `fa-registry`, to a command's help."""

    def add(function: Callable) -> Callable:
        text = "\n".join(f"  fa-registry {line}" for line in lines)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExamples:\n{text}"
        return function

    return add
