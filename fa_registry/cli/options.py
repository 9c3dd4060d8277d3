"""Click options from the table of options, with the completion and the check of names.

The import of PyTorch and MLflow takes seconds. With the check, a mistyped name is reported before this import. The command itself
checks all names again. The completion does not need this import either.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from fa_registry.errors import InvalidFields, PluginError, RegistryError, UnknownName
from fa_registry.inspection.plugin_list import CATALOGS
from fa_registry.option_table import MISSING, OptionDeclaration, as_list, merged, options_of
from fa_registry.plugin_registry import Catalog
from fa_registry.studies import study_files

AS_JSON = "fa_registry.as_json"  # key of the contexts' shared data: whether the command prints JSON


def _keep_json(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    context.meta[AS_JSON] = value
    return value


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.", callback=_keep_json)


def takes(
    *sources: Callable | type, only: str = "", without: str = "", argument: str = ""
) -> Callable[[Callable], Callable]:
    """Return a decorator that adds options to a command.

    Args:
        sources: functions of `api` or option groups, which declare the options.
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
    properties = {"help": option.help, "metavar": option.metavar, "default": option.default}
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


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
WITH_PATHS = ("studies", "study files", "editions")  # kinds of names whose place a path can take


def completer(offered: str | tuple[str, ...], is_list: bool = False) -> Complete | None:
    """Return the function that completes the value of an option, or the last value of a list with commas.

    The argument `offered` is the value of `OptionDeclaration.completes`: a kind of names, or the names.
    """
    if not offered:
        return None

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        previous, comma, last = typed.rpartition(",") if is_list else ("", "", typed)
        names = offered if isinstance(offered, tuple) else _offered_names(offered)
        items = [CompletionItem(f"{previous}{comma}{name}") for name in sorted(names) if name.startswith(last)]
        return items if items or offered not in WITH_PATHS else [CompletionItem(typed, type="file")]

    return complete


def _offered_names(kind: str) -> Iterable[str]:
    if kind == "editions":
        from fa_registry.protocol.rules import shipped  # this import reads the editions

        return shipped()
    if kind in WITH_PATHS:
        return study_files.names()
    try:
        names = Catalog(kind, kind, home="studies.executors" if kind == "executors" else "").names()
    except PluginError:  # the command reports the broken package, but a completion cannot
        return []
    return [name.replace("_", "-") if kind == "analyses" else name for name in names]


def examples(*lines: str) -> Callable:
    """Return a decorator that appends examples, without the leading `fa-registry`, to a command's help."""

    def add(function: Callable) -> Callable:
        text = "\n".join(f"  fa-registry {line}" for line in lines)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExamples:\n{text}"
        return function

    return add


NUMBER = re.compile(r"[0-9][0-9.,]*|True|False")  # also several numbers with commas, and flags
SINGULAR = {"methods": "method", "architectures": "architecture", "datasets": "data set", "executors": "executor"}


def check_names(command: str, options: Iterable[OptionDeclaration], values: Mapping[str, Any], argument: str) -> None:
    """Check the names in the values of options.

    This function cannot check the values of some options. If the user has set such an option, the function checks nothing. The
    command later reports all problems together.

    Args:
        argument: kind of the names in the argument `name` or `names` of the command; empty if these are not checked.

    Raises:
        InvalidFields: lists all names that are not known.
    """
    names = (*values.get("names", ()), values.get("name")) if argument else ()
    if not all(_is_checked_here(option, values[option.name]) for option in options if option.name in values):
        return
    problems = [f"name: {problem}" for problem in _problems(argument, filter(None, names))]
    problems += [
        f"{option.flag.removeprefix('--')}: {problem}"
        for option in options
        if isinstance(option.completes, str) and option.name in values
        for problem in _problems(option.completes, _names(option, values[option.name]))
    ]
    if problems:
        raise InvalidFields(command, problems)


def check_card(name: str, kind: str) -> None:
    """Raise UnknownName if no plug-in of this kind has both a card and this name.

    An empty `kind` means all kinds.
    """
    catalogs = [Catalog(each, each) for each in ((kind,) if kind in CATALOGS else () if kind else CATALOGS)]
    base_name = name.partition(":")[0]
    if catalogs and not any(base_name in catalog.builtin_names() for catalog in catalogs):
        names = [known for catalog in catalogs for known in catalog.names()]
        if base_name not in names:
            raise UnknownName("name", name, names)


def _is_checked_here(option: OptionDeclaration, value: Any) -> bool:
    """Return whether the value is a name that this module checks, or a number, a flag or a default value."""
    is_default = value in ("", (), None, {}) or value == str(option.default)
    is_name = isinstance(option.completes, str) and bool(option.completes)
    return is_default or is_name or bool(NUMBER.fullmatch(str(value)))


def _names(option: OptionDeclaration, value: Any) -> tuple[str, ...]:
    return tuple(map(str, as_list(value))) if option.is_list else (str(value or ""),)


def _problems(kind: str, names: Iterable[str]) -> Iterator[str]:
    for name in filter(None, names):
        # the command reports a broken package or file with the details
        with suppress(RegistryError, OSError, ValueError):
            try:
                _look_up(kind, name)
            except UnknownName as error:
                yield str(error)


def _look_up(kind: str, name: str) -> None:
    """Raise UnknownName if the name is not known; names of other kinds are not checked."""
    if kind == "study files":
        study_files.find(name)
    elif kind == "analyses":
        names = [*(known.replace("_", "-") for known in Catalog(kind, kind).names()), "all"]
        if name not in names:
            raise UnknownName("analysis", name, names)
    elif kind == "editions":
        from fa_registry.protocol.rules import load_edition  # imports pydantic

        load_edition(name)
    elif kind in SINGULAR and ":" not in name:  # `text:PATH` has a parameter
        catalog = Catalog(kind, SINGULAR[kind], home="studies.executors" if kind == "executors" else "")
        if name not in catalog.builtin_names():  # third-party names require the metadata of all packages
            catalog.location(name)
